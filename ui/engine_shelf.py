"""The engines that visitors made, beside the one all of them share. Keeps a few and drops the oldest.

Knows nothing about what an engine does.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa_core.errors import MedusaError

if TYPE_CHECKING:
    from medusa_core.engine import Engine

MOST_ENGINES = 4


@dataclass(frozen=True)
class OwnEngine:
    """An engine with the name its maker gave it."""

    label: str
    engine: Engine


class EngineShelf:
    """Engines by an id that cannot be guessed. Used on the engine's thread alone."""

    def __init__(self, most: int = MOST_ENGINES) -> None:
        self._most = most
        self._engines: OrderedDict[str, OwnEngine] = OrderedDict()

    def add(self, label: str, engine: Engine) -> str:
        """Keep an engine, at the cost of the one that was not used for longest; return its id."""
        name = uuid.uuid4().hex
        self._engines[name] = OwnEngine(label, engine)
        while len(self._engines) > self._most:
            self._engines.popitem(last=False)
        return name

    def get(self, name: str) -> OwnEngine:
        """The engine of an id. Raises MedusaError when it was dropped or never there."""
        if name not in self._engines:
            raise MedusaError(
                f"your heads are gone: the app keeps the {self._most} last used. "
                "Train them again, or choose those shipped with the model"
            )
        self._engines.move_to_end(name)
        return self._engines[name]
