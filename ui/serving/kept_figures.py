"""Keeps what was measured on one's own machine over a reload of the page and a restart of the app.

On a public page nothing is kept: a measurement is the visitor's who made it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from medusa_core.config import ENGINE_VERSION, LoadConfig
from ui.records.figures import Figures, Key, PageFigures, key_of, stored_page
from ui.records.selection import Selection


class KeptFigures:
    """The one owner of the files; a page holds its `PageFigures`."""

    def __init__(self, assets: Path, load_of: Callable[[Selection], LoadConfig], keeps: bool):
        """``load_of`` says what a visitor's model is loaded from."""
        self._load_of, self._keeps = load_of, keeps
        self._stored = stored_page(assets)

    def begin(self) -> PageFigures:
        """What a page shows before its browser has said anything."""
        return self._stored

    def choose(self, page: PageFigures, selection: Selection) -> PageFigures:
        """The figures of the visitor's model, also those of an earlier start."""
        key = key_of(selection)
        chosen = page if page.key == key else page.choosing(key)
        file = self._file_key(key)
        if file is None or chosen.own is not None:
            return chosen
        from medusa_core.loading.tuning import recall  # noqa: PLC0415 - imports torch

        found = Figures.from_data(recall(file), key)
        return chosen if found is None else chosen.having(found)

    def adopt(self, page: PageFigures, found: Figures | None) -> PageFigures:
        """With a new measurement, which is kept where the page is its owner's alone."""
        if found is None or not found.at or found is page.measured.get(found.key):
            return page  # nothing was measured
        file = self._file_key(found.key)
        if file is not None:
            from medusa_core.loading.tuning import keep  # noqa: PLC0415

            keep(file, found.as_data())
        return page.having(found)

    def forget(self, page: PageFigures) -> PageFigures:
        """Without the measurement of the chosen model, here and in later starts."""
        file = self._file_key(page.key)
        if file is not None:
            from medusa_core.loading.tuning import forget  # noqa: PLC0415

            forget(file)
        return page.without_own()

    def _file_key(self, key: Key) -> dict[str, Any] | None:
        """What a kept measurement holds for; None where nothing is kept, as with heads made on the page."""
        engine, model = key
        if engine or not self._keeps:
            return None
        from medusa_core.loading.tuning import machine_key, may_measure  # noqa: PLC0415

        if not may_measure():
            return None
        load = asdict(self._load_of(Selection(model=model)))
        return machine_key() | {"figures": ENGINE_VERSION, "load": {k: str(v) for k, v in load.items()}}
