"""Batches of token windows: what the recipes train on and are measured by.

Arrays are cut into windows of equal length. Their order is a function of the settings and the seed alone, so
a run that is killed and resumed sees the same batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from medusa_core.errors import MedusaError
from medusa_core.training.config import DrafterConfig
from medusa_core.training.corpus import encode_source, load_recipe, load_sources
from medusa_core.training.encoding import Encoder, TokenArrays

MOST_WINDOWS = 2**22  # laid out before their order repeats: 64 MiB of places
HELDOUT_WINDOWS = 64  # of each kind of text by default: enough for a second decimal of the loss


@dataclass(frozen=True)
class Batch:
    """Windows of B rows and T tokens. Padding, at the end of a row, is never trained."""

    tokens: torch.Tensor  # int64 [B, T]
    trained: torch.Tensor  # bool [B, T]: whether predicting this token counts

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        return Batch(self.tokens.to(device), self.trained.to(device))


@dataclass(frozen=True)
class TrainingData:
    """What a recipe trains on, and by kind the text it never sees in its windows."""

    mixture: PackedMixture
    heldout: dict[str, Batch]


def load_data(config: DrafterConfig, tokenizer: PreTrainedTokenizerBase) -> TrainingData:
    """Read, encode and pack the training text; encoded text is kept in the run folder.

    ``data`` of the settings names a file or a folder; when it is empty, the JSON ``recipe`` names the files,
    relative to ``data_root``. Raises MedusaError that names what is missing or the line that is bad.
    """
    if config.data:
        sources = load_sources(Path(config.data).expanduser(), config.heldout_share)
    elif config.recipe:
        sources = load_recipe(Path(config.recipe), Path(config.data_root))
    else:
        raise MedusaError("there is nothing to train on: name a file or folder with --data")
    encoder = Encoder(tokenizer)
    cache, length = Path(config.out) / "tokens", config.sequence_length - 1
    splits = {source.kind: encode_source(source, encoder, cache) for source in sources}
    mixture = PackedMixture(
        [split.train for split in splits.values()],
        [len(splits[source.kind].train) if source.weight is None else source.weight for source in sources],
        length,
        config.tokens // config.sequence_length + 1,  # the windows laid out before their order repeats
        config.seed,
        encoder.end,
    )
    heldout = {
        kind: heldout_windows(split.heldout, length, encoder.end, config.heldout_windows)
        for kind, split in splits.items()
    }
    return TrainingData(mixture, heldout)


def heldout_windows(arrays: TokenArrays, length: int, pad: int, count: int = HELDOUT_WINDOWS) -> Batch:
    """The first ``count`` windows of ``length + 1`` tokens with something to predict, the last padded."""
    starts = _predicting(arrays, np.arange(0, max(len(arrays) - 1, 1), length), length)[:count]
    return _cut([arrays] * len(starts), starts, length, pad)


class PackedMixture:
    """Windows of ``length + 1`` tokens drawn from several arrays in given shares.

    Each array is cut into windows from a random offset, shuffled, and used up before it is cut again from
    another offset: no window is seen twice in an epoch, however far the order is laid out. Neighbouring
    windows share one token, the last target of one and the first input of the next. Windows in which nothing
    counts are left out. An array shorter than a window is one window, padded with ``pad``. ``batch(i)`` is a
    pure function of the arguments and the seed.
    """

    def __init__(
        self,
        arrays: Sequence[TokenArrays],
        weights: Sequence[float],
        length: int,
        windows: int,
        seed: int,
        pad: int,
    ) -> None:
        self._arrays = list(arrays)
        self._length = length
        self._pad = pad
        rng = np.random.default_rng(seed)
        windows = min(windows, MOST_WINDOWS)
        share = np.asarray(weights) / np.sum(weights)
        counts = np.ceil(share * max(windows, 1)).astype(int)
        # Only which array comes next is shuffled: if the windows of several epochs were shuffled, a part of
        # the order could show some of them many times and others never.
        which = rng.permutation(np.repeat(np.arange(len(counts)), counts))
        starts = np.empty_like(which)
        for index, (array, count) in enumerate(zip(arrays, counts, strict=True)):
            starts[which == index] = _window_starts(array, length, count, rng)
        self._order = np.stack([which, starts], axis=1)

    def batch(self, index: int, size: int) -> Batch:
        """Windows number ``index * size`` onwards, [size, length + 1]."""
        rows = np.take(self._order, range(index * size, (index + 1) * size), axis=0, mode="wrap")
        return _cut([self._arrays[which] for which, _ in rows], rows[:, 1], self._length, self._pad)


def _cut(arrays: Sequence[TokenArrays], starts: np.ndarray, length: int, pad: int) -> Batch:
    tokens = np.full((len(starts), length + 1), pad, dtype=np.int64)
    trained = np.zeros((len(starts), length + 1), dtype=bool)
    for row, (array, start) in enumerate(zip(arrays, starts, strict=False)):
        window = array[start : start + length + 1]
        tokens[row, : len(window)] = window.tokens
        trained[row, : len(window)] = window.trained
    return Batch(torch.from_numpy(tokens), torch.from_numpy(trained))


def _window_starts(array: TokenArrays, length: int, count: int, rng: np.random.Generator) -> np.ndarray:
    starts: list[np.ndarray] = []
    found = 0
    while found < count:
        # The offset leaves room for one window at least, and lets the last one reach the end.
        offset = int(rng.integers(max(1, min(length, len(array) - length))))
        cut = np.arange(offset, max(len(array) - length, 1), length)
        starts.append(rng.permutation(_predicting(array, cut, length)))
        found += len(starts[-1])
    return np.concatenate(starts)[:count]


def _predicting(array: TokenArrays, starts: np.ndarray, length: int) -> np.ndarray:
    """The starts of those neighbouring windows in which a token behind the first one counts."""
    targets = array.trained[starts[0] + 1 : starts[-1] + 1 + length]
    return starts[np.logical_or.reduceat(targets, starts - starts[0])]
