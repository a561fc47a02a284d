"""Engines beside the app's own: those that visitors made, and the models they have chosen. Each keeps a few.

What a visitor made cannot be made again by the app, so it goes only when there are too many; a model is read
again from its files, so it goes also when memory is short.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError

if TYPE_CHECKING:
    from medusa_core.engine import Engine

MOST_ENGINES = 4
MOST_MODELS = 3


@dataclass(frozen=True)
class TrainedEngine:
    """An engine with the name its maker gave it."""

    label: str
    engine: Engine


class TrainedEngineCache:
    """Engines by an id that cannot be guessed. Used on the engine's thread alone."""

    def __init__(self, most: int = MOST_ENGINES) -> None:
        self._most = most
        self._engines: OrderedDict[str, TrainedEngine] = OrderedDict()

    def add(self, label: str, engine: Engine) -> str:
        """Keep an engine, at the cost of the one that was not used for longest; return its id."""
        name = uuid.uuid4().hex
        self._engines[name] = TrainedEngine(label, engine)
        while len(self._engines) > self._most:
            self._engines.popitem(last=False)
        return name

    def get(self, name: str) -> TrainedEngine:
        """The engine of an id. Raises MedusaError when it was dropped or never there."""
        if name not in self._engines:
            raise MedusaError(
                f"your heads are gone: the app keeps the {self._most} last used. "
                "Train them again, or choose those shipped with the model"
            )
        self._engines.move_to_end(name)
        return self._engines[name]


class ModelCache:
    """Models by what they are loaded from, so that visitors who choose the same one share it. For any thread.

    The one that was not used for longest goes first, but none that a run is using.
    """

    def __init__(self, most: int = MOST_MODELS) -> None:
        self._most = most
        self._models: OrderedDict[LoadConfig, Engine] = OrderedDict()
        self._users: Counter[LoadConfig] = Counter()
        self._lock = threading.Lock()

    def add(self, source: LoadConfig, engine: Engine) -> None:
        """Keep a model, at the cost of others where there are too many."""
        with self._lock:
            self._models[source] = engine
            self._models.move_to_end(source)
            while len(self._models) > self._most and (oldest := self._unused(but=source)):
                del self._models[oldest]

    def get(self, source: LoadConfig) -> Engine | None:
        """The model, if it is there; that counts as use."""
        with self._lock:
            if source in self._models:
                self._models.move_to_end(source)
            return self._models.get(source)

    @contextmanager
    def in_use(self, source: LoadConfig) -> Iterator[None]:
        """Within it this model is not dropped, whether it is there already or comes meanwhile."""
        with self._lock:
            self._users[source] += 1
        try:
            yield
        finally:
            with self._lock:
                self._users[source] -= 1

    def drop_oldest(self) -> bool:
        """Drop the model that was not used for longest; False when no model can go."""
        with self._lock:
            oldest = self._unused()
            return oldest is not None and self._models.pop(oldest) is not None

    def droppable_bytes(self) -> int:
        """What dropping every model that can go would give back."""
        with self._lock:
            return sum(_bytes_of(self._models[source]) for source in self._models if not self._users[source])

    def _unused(self, but: LoadConfig | None = None) -> LoadConfig | None:
        return next((one for one in self._models if not self._users[one] and one != but), None)


def _bytes_of(engine: Engine) -> int:
    drafts = (tensor for draft in engine.drafts.values() for tensor in draft.tensors())
    return engine.target.weight_bytes + sum(tensor.nbytes for tensor in drafts)
