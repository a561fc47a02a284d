"""Kinds of text and their token arrays.

A recipe names the kinds of text, their files and their share of the training tokens; without one, each file
is a kind. A kind's examples are encoded once into flat arrays, one to train on and one that is held out, and
cached under a name that changes with the files, the tokenizer and the split.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from medusa_core.errors import MedusaError, reason_of
from medusa_core.files import open_file, read_text, whole_file
from medusa_core.training.encoding import Encoder, TokenArrays
from medusa_core.training.examples import Example, data_files, read_examples

_LAYOUT = 1  # raise when the same text becomes other arrays, so that older caches are not read
_BATCH_EXAMPLES = 1024
_BATCH_CHARACTERS = 2**20
_FEW_DOCUMENTS = 4
_HELDOUT_TOKENS = 32  # held out of a few documents, unless that is more than a quarter
_LEAST_TRAINED = 4  # two to train on and two to hold out


@dataclass(frozen=True)
class Source:
    """One kind of text: where it is, how much of the training it makes up, what is held out of it."""

    kind: str
    files: tuple[Path, ...]
    weight: float | None  # None: the number of its tokens
    heldout: tuple[Path, ...]
    heldout_every: int  # without held-out files: every n-th document is held out

    def labelled(self) -> Iterator[tuple[Example, bool]]:
        """Yield all examples, each with whether it is held out."""
        for index, example in enumerate(chain.from_iterable(map(read_examples, self.files))):
            yield example, not self.heldout and index % self.heldout_every == self.heldout_every - 1
        for example in chain.from_iterable(map(read_examples, self.heldout)):
            yield example, True

    def examples(self, *, heldout: bool) -> Iterator[Example]:
        """Yield the training examples, or the held-out ones."""
        return (example for example, held in self.labelled() if held == heldout)

    def documents(self, *, heldout: bool) -> Iterator[str]:
        """Yield the texts of the training examples, or of the held-out ones; of a conversation its turns."""
        return (example.plain_text for example in self.examples(heldout=heldout))


@dataclass(frozen=True)
class Split:
    """The arrays of one kind of text, memory-mapped. Neither is empty, and they share no token."""

    train: TokenArrays
    heldout: TokenArrays


def load_recipe(path: Path, root: Path) -> list[Source]:
    """Read a recipe: ``{"sources": [{"kind", "files", "weight", "heldout"?, "heldout_every"?}]}``.

    File names are relative to ``root`` and name files or folders of any format of ``examples``. Raises
    MedusaError when one is missing or a field is.
    """
    try:
        sources = [_source(entry, root) for entry in json.loads(read_text(path))["sources"]]
    except MedusaError as error:
        raise MedusaError(
            f"the recipe {path} names what is not there ({error}): set --data-root, or train on "
            "text of your own with --data"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MedusaError(
            f"cannot read the data recipe {path} ({reason_of(error)}): correct it, or train on text of your "
            "own with --data"
        ) from error
    kinds = [source.kind for source in sources]
    if not kinds or len(set(kinds)) < len(kinds):
        raise MedusaError(f"the recipe {path} has the kinds {kinds}: name one at least, and each once")
    return sources


def _source(entry: dict[str, Any], root: Path) -> Source:
    weight, every = float(entry["weight"]), int(entry.get("heldout_every", 50))
    if not (math.isfinite(weight) and weight > 0) or every < 2:
        raise ValueError(f"weight {weight} must be above 0 and heldout_every {every} above 1")
    kind, files, heldout = entry["kind"], entry["files"], entry.get("heldout", [])
    if not isinstance(kind, str) or not isinstance(files, list) or not isinstance(heldout, list):
        raise TypeError('"kind" must be a string, "files" and "heldout" lists')
    found, held = (
        tuple(file for name in names for file in data_files(root / name)) for names in (files, heldout)
    )
    both = {file.resolve() for file in found} & {file.resolve() for file in held}
    if not found or both:
        raise ValueError(f"{kind!r} trains on {len(found)} files and holds out {len(both)} of the same")
    return Source(kind, found, weight, held, every)


def load_sources(data: Path, heldout_share: float) -> list[Source]:
    """A source for a file, or for each file of a folder, weighted by its tokens.

    The kind is the file's stem, or its name where two files share a stem. Raises MedusaError for none.
    """
    files = data_files(data)
    stems = [file.name.removesuffix(".xz").rpartition(".")[0] or file.name for file in files]
    return [
        Source(stem if stems.count(stem) == 1 else file.name, (file,), None, (), round(1 / heldout_share))
        for file, stem in zip(files, stems, strict=True)
    ]


# --- arrays


def encode_source(source: Source, encoder: Encoder, cache: Path) -> Split:
    """The token arrays of a source; from ``cache`` when it holds them for these files and this tokenizer.

    The held-out files are held out, else every n-th document: of fewer documents the one of median length,
    and of fewer than four the last n-th of the tokens that count. Raises MedusaError when there is too little
    to split.
    """
    stem = f"{_file_stem(source.kind)}-{_fingerprint(source, encoder)}"
    files = [cache / f"{stem}.{part}.npy" for part in ("train", "train-mask", "heldout", "heldout-mask")]
    if not all(file.is_file() for file in files):
        train, heldout = _encode(source, encoder)
        arrays = (train.tokens, train.trained, heldout.tokens, heldout.trained)
        try:
            _write(dict(zip(files, arrays, strict=True)), cache, _file_stem(source.kind))
        except OSError as error:
            raise MedusaError(
                f"cannot write the encoded text to {cache} ({reason_of(error)}): free some space"
            ) from error
    try:
        mapped = [np.load(file, mmap_mode="r") for file in files]
    except (OSError, ValueError) as error:  # a disk that was full: numpy does not always notice
        for file in files:
            file.unlink(missing_ok=True)
        raise MedusaError(
            f"the encoded text in {cache} was damaged ({reason_of(error)}) and is removed: "
            "free some space and start again"
        ) from error
    return Split(TokenArrays(*mapped[:2]), TokenArrays(*mapped[2:]))


def _write(arrays: dict[Path, np.ndarray], cache: Path, kind: str) -> None:
    """Save the arrays, each at once, and remove those of the kind's earlier text."""
    for file in cache.glob("*.npy"):
        if re.fullmatch(re.escape(kind) + r"-[0-9a-f]{32}\.[a-z-]+", file.stem) and file not in arrays:
            file.unlink(missing_ok=True)
    for file, array in arrays.items():
        with whole_file(file) as new:  # several processes may encode the same
            np.save(new, array)


def _file_stem(kind: str) -> str:
    """A kind as a part of a file name; other names than plain ones are told apart by a hash."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", kind)[:40]
    name = kind.encode(errors="surrogatepass")  # the bytes of a file's name need not be UTF-8
    return plain if plain == kind else f"{plain}_{hashlib.blake2b(name, digest_size=4).hexdigest()}"


def _fingerprint(source: Source, encoder: Encoder) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([_LAYOUT, encoder.fingerprint, source.heldout_every]).encode())
    for part in (source.files, source.heldout):
        digest.update(f"{len(part)} files".encode())
        for file in part:
            try:
                with open_file(file) as stream:
                    content = hashlib.file_digest(stream, "blake2b").hexdigest()
            except OSError as error:
                raise MedusaError(f"cannot read {file} ({reason_of(error)}): name another") from error
            digest.update(json.dumps([file.suffixes, content]).encode())
    return digest.hexdigest()


def _encode(source: Source, encoder: Encoder) -> tuple[TokenArrays, TokenArrays]:
    """Encode a source in batches, so that only arrays, never lists of all its tokens, are held."""
    train: list[TokenArrays] = []
    heldout: list[TokenArrays] = []
    lengths: list[int] = []  # token counts of the first documents, enough to split a few
    for batch in _batches(source.labelled()):
        encoded = encoder.encode([example for example, _ in batch])
        sides = [held for _, held in batch]
        for into, side in ((train, False), (heldout, True)):
            parts = [arrays for arrays, held in zip(encoded, sides, strict=True) if held == side]
            into.extend([TokenArrays.joined(parts)] if parts else [])
        if len(lengths) < source.heldout_every:
            lengths += [len(arrays) for arrays in encoded if len(arrays)]
    if not sum(map(len, train)):
        raise MedusaError(f"the training text of {source.kind!r} makes no token: add text")
    if sum(map(len, heldout)):
        kept, held = TokenArrays.joined(train), TokenArrays.joined(heldout)
    else:
        kept, held = _split_few(TokenArrays.joined(train), lengths, source)
    opening = [] if encoder.opening is None else [encoder.opening]
    return TokenArrays.joined([*opening, kept]), TokenArrays.joined([*opening, held])


def _split_few(arrays: TokenArrays, lengths: list[int], source: Source) -> tuple[TokenArrays, TokenArrays]:
    """Hold out one of a few documents, or the end of fewer than four."""
    if len(lengths) >= _FEW_DOCUMENTS:
        middle = int(np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2])
        begin = sum(lengths[:middle])
        end = begin + lengths[middle]
        return TokenArrays.joined([arrays[:begin], arrays[end:]]), arrays[begin:end]
    counted = np.flatnonzero(arrays.trained)
    if len(counted) < _LEAST_TRAINED:
        raise MedusaError(
            f"the text of {source.kind!r} has {len(counted)} tokens to train on, "
            f"{_LEAST_TRAINED} are needed: add text"
        )
    share = max(len(counted) // source.heldout_every, _HELDOUT_TOKENS)
    cut = counted[-max(2, min(share, len(counted) // 4))]
    return arrays[:cut], arrays[cut:]


def _batches(examples: Iterator[tuple[Example, bool]]) -> Iterator[list[tuple[Example, bool]]]:
    batch: list[tuple[Example, bool]] = []
    size = 0
    for example, held in examples:
        batch.append((example, held))
        size += len(example.text or "") + sum(len(message.content) for message in example.messages)
        if len(batch) == _BATCH_EXAMPLES or size > _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
