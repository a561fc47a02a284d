"""Runs recorded from public code: a few in tests/golden, the full set next to the repository when present.

The few have weights rounded to float16 and compressed with xz (tests/golden/README.md): trees and tokens are
still compared exactly, numbers less closely than those of the full set.
"""

from __future__ import annotations

import functools
import json
import lzma
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from paths import BESIDE, ROOT


@dataclass(frozen=True)
class Golden:
    """The recording of one method: in the repository, or ``full`` next to it."""

    name: str
    full: bool

    @property
    def folder(self) -> Path:
        if not self.full:
            return ROOT / "tests" / "golden" / self.name
        return BESIDE / "golden" / ("" if self.name == "medusa" else self.name)

    @functools.cache  # noqa: B019 (a recording is never released)
    def recorded(self, file: str = "runs.json") -> dict[str, Any]:
        return json.loads((self.folder / file).read_text(encoding="utf-8"))

    @functools.cache  # noqa: B019
    def models(self) -> Path:
        """The folder of the recording, or a copy of it with unpacked weights."""
        if self.full:
            return self.folder
        copy = Path(_temporary().name) / self.name
        shutil.copytree(self.folder, copy)
        for packed in copy.rglob("*.xz"):
            packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
        return copy

    def within(self, exact: float, rounded: float) -> float:
        """The tolerance of a comparison: with the recorded weights, or with those rounded to float16."""
        return exact if self.full else rounded


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory:
    """A folder that is removed when the process ends."""
    return tempfile.TemporaryDirectory()


def golden_rows(name: str, rows: Callable[[Golden], Iterable[tuple]] = lambda _: [()]) -> list:
    """Parameters ``(golden, *row)`` for the rows of both recordings; those of the full one are slow tests."""
    sets = [Golden(name, full=False), Golden(name, full=True)]
    return [
        pytest.param(
            one, *row,
            id="-".join(map(str, ("full" if one.full else "few", *row))),
            marks=[pytest.mark.slow] if one.full else [],
        )
        for one in sets if not one.full or (one.folder / "runs.json").is_file()
        for row in rows(one)
    ]  # fmt: skip
