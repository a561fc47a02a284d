"""Any other work on an engine, such as measuring trees or training heads."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ui.records.selection import DEFAULT, YOURS, Selection
from ui.records.updates import StopFlag
from ui.serving.engines import Engines
from ui.serving.runner import Request
from ui.serving.turns import TimeShare

if TYPE_CHECKING:
    from medusa_core.engine import Engine


@dataclass(frozen=True)
class EngineWork(Request):
    """``work(engine)`` on the visitor's engine; a function that can be pickled where a GPU is borrowed."""

    work: Callable[[Engine], Generator[Any, None, None]]
    visitor: Selection
    share: TimeShare | None = None

    @property
    def selection(self) -> Selection:
        """What the visitor has chosen."""
        return self.visitor

    def run(self, engines: Engines, flag: StopFlag) -> Generator[Any, None, None]:
        """What the work yields."""
        engine = yield from engines.ready(self.selection, YOURS if self.selection.engine else DEFAULT)
        yield from self.work(engine)
