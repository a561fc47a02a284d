"""Text in, packed token windows out.

A recipe names the kinds of text, their files and their share of the training tokens. Documents are
separated by a line ``<|endoftext|>``; they are encoded once, cached as one flat array per kind, and cut
into windows of equal length. The order of the windows is a function of the seed alone, so a run that is
killed and resumed sees the same batches. Knows nothing about models or losses.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from medusa_core.errors import MedusaError

END_OF_TEXT = "<|endoftext|>"
HELDOUT_WINDOWS = 64  # of each kind of text; enough for a second decimal of the loss


@dataclass(frozen=True)
class Source:
    """One kind of text: where it is, how much of the training it makes up, what is held out of it."""

    kind: str
    files: tuple[Path, ...]
    weight: float
    heldout: tuple[Path, ...]
    heldout_every: int  # without held-out files: every n-th document is held out

    def documents(self, *, heldout: bool) -> Iterator[str]:
        """Yield the training documents, or the held-out ones."""
        if self.heldout:
            yield from _read_documents(self.heldout if heldout else self.files)
            return
        for index, document in enumerate(_read_documents(self.files)):
            if (index % self.heldout_every == self.heldout_every - 1) == heldout:
                yield document


def load_recipe(path: Path, root: Path) -> list[Source]:
    """Read a recipe: ``{"sources": [{"kind", "files", "weight", "heldout"?, "heldout_every"?}]}``.

    File names are relative to ``root``. Raises MedusaError when a file is missing or a field is.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["sources"]
        sources = [
            Source(
                kind=entry["kind"],
                files=tuple(root / name for name in entry["files"]),
                weight=float(entry["weight"]),
                heldout=tuple(root / name for name in entry.get("heldout", ())),
                heldout_every=int(entry.get("heldout_every", 50)),
            )
            for entry in entries
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MedusaError(f"cannot read the data recipe {path}: {error!r}") from error
    for source in sources:
        for file in (*source.files, *source.heldout):
            if not file.is_file():
                raise MedusaError(f"the recipe {path} names {file}, which does not exist: set --data-root")
    return sources


def _read_documents(files: tuple[Path, ...]) -> Iterator[str]:
    for file in files:
        opener = lzma.open if file.suffix == ".xz" else open
        with opener(file, "rt", encoding="utf-8") as lines:
            document: list[str] = []
            for line in lines:
                if line.rstrip("\n") == END_OF_TEXT:
                    if document:
                        yield "".join(document).strip("\n")
                    document = []
                else:
                    document.append(line)
            if document:
                yield "".join(document).strip("\n")


def encode_source(source: Source, tokenizer: Tokenizer, cache: Path, *, heldout: bool) -> np.ndarray:
    """Token ids of all documents of a source, each closed by end-of-text, as one flat uint16 array.

    The array is cached under ``cache`` and read back memory-mapped.
    """
    cache.mkdir(parents=True, exist_ok=True)
    file = cache / f"{source.kind}_{'heldout' if heldout else 'train'}.npy"
    if not file.is_file():
        end = tokenizer.token_to_id(END_OF_TEXT)
        pieces: list[np.ndarray] = []
        for batch in _batches(source.documents(heldout=heldout), 1024):
            for encoding in tokenizer.encode_batch(batch, add_special_tokens=False):
                pieces.append(np.asarray([*encoding.ids, end], dtype=np.uint16))
        partial = file.with_suffix(".partial.npy")
        np.save(partial, np.concatenate(pieces))
        partial.replace(file)
    return np.load(file, mmap_mode="r")


def _batches(documents: Iterator[str], size: int) -> Iterator[list[str]]:
    batch: list[str] = []
    for document in documents:
        batch.append(document)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def heldout_windows(
    sources: list[Source], tokenizer: Tokenizer, cache: Path, length: int
) -> dict[str, torch.Tensor]:
    """The first held-out windows of each kind of text, int64 [rows, length + 1]."""
    windows: dict[str, torch.Tensor] = {}
    for source in sources:
        array = encode_source(source, tokenizer, cache, heldout=True)
        rows = min(HELDOUT_WINDOWS, (len(array) - 1) // length)
        if rows == 0:
            raise MedusaError(
                f"the held-out text of {source.kind!r} has {len(array)} tokens, "
                f"evaluation needs {length + 1}: hold out more"
            )
        stacked = np.stack([array[i * length : (i + 1) * length + 1] for i in range(rows)])
        windows[source.kind] = torch.from_numpy(stacked.astype(np.int64))
    return windows


class PackedMixture:
    """Windows of ``length + 1`` tokens drawn from several arrays in given shares.

    Each array is cut into windows from a random offset, shuffled, and used up before it is cut again
    from another offset: no window is seen twice in an epoch. ``batch(i)`` is a pure function of the
    arguments and the seed.
    """

    def __init__(
        self, arrays: list[np.ndarray], weights: list[float], length: int, windows: int, seed: int
    ) -> None:
        self._arrays = arrays
        self._length = length
        rng = np.random.default_rng(seed)
        share = np.asarray(weights) / np.sum(weights)
        picks = [
            np.stack([np.full(count, index), _window_starts(len(array), length, count, rng)], axis=1)
            for index, (array, count) in enumerate(
                zip(arrays, np.ceil(share * windows).astype(int), strict=True)
            )
        ]
        self._order = rng.permutation(np.concatenate(picks))

    def batch(self, index: int, size: int) -> np.ndarray:
        """Windows number ``index * size`` onwards, as int64 [size, length + 1]."""
        rows = np.take(self._order, range(index * size, (index + 1) * size), axis=0, mode="wrap")
        return np.stack(
            [self._arrays[which][start : start + self._length + 1] for which, start in rows]
        ).astype(np.int64)


def _window_starts(total: int, length: int, count: int, rng: np.random.Generator) -> np.ndarray:
    if total < 2 * length + 1:
        raise MedusaError(
            f"a source has {total} tokens; windows of {length} need at least {2 * length + 1}: "
            "add text or lower --sequence-length"
        )
    starts: list[np.ndarray] = []
    while sum(map(len, starts)) < count:
        offset = int(rng.integers(length))
        starts.append(rng.permutation(np.arange(offset, total - length, length)))
    return np.concatenate(starts)[:count]
