"""What runs need: the models, the heads that visitors trained, and what was read of conversations."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Generator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from medusa_core.errors import MedusaError
from ui.records.settings import YOURS, Selection
from ui.records.updates import Update
from ui.records.words import Words
from ui.serving.models import Models, badge_of

if TYPE_CHECKING:
    from medusa_core.engine import Engine, RunState

# The app cannot rebuild an engine with a visitor's own heads, so it drops one only beyond this number.
MOST_ENGINES = 4
MOST_CONVERSATIONS = 8
MOST_BYTES = 2 * 2**30  # limit of a model's caches; a 7B model's cache of 4096 tokens takes this much


class Engines:
    """All engines of one app. Those that visitors made are used only on the engine's thread."""

    def __init__(self, models: Models) -> None:
        self.models = models
        self.trained = TrainedEngineCache()
        self.conversations = ConversationCache()

    def ready(self, selection: Selection, heads: str) -> Generator[Update, None, Engine]:
        """The engine of a run, loaded if necessary; yields what the visitor should know meanwhile.

        Raises MedusaError for heads that are gone, and as loading does.
        """
        if heads == YOURS:
            if not selection.engine:
                raise MedusaError("you have no heads of your own: train some, or choose the shipped ones")
            own = self.trained.get(selection.engine)
            yield Update(badge=Words("your heads “{0}” · {1}", selection.label, badge_of(own)))
            return own
        engine = yield from self.models.ready(selection)
        yield Update(badge="")
        return engine


class TrainedEngineCache:
    """Engines by an id that cannot be guessed. Used only on the engine's thread."""

    def __init__(self, most: int = MOST_ENGINES) -> None:
        self._most = most
        self._engines: OrderedDict[str, Engine] = OrderedDict()

    def add(self, engine: Engine) -> str:
        """Keep an engine, in place of the least recently used one if there are too many; return its id."""
        name = uuid.uuid4().hex
        self._engines[name] = engine
        while len(self._engines) > self._most:
            self._engines.popitem(last=False)
        return name

    def get(self, name: str) -> Engine:
        """The engine of an id. Raises MedusaError when it was dropped or never there."""
        if name not in self._engines:
            raise MedusaError(
                f"your heads are gone: the app keeps the {self._most} most recently used. "
                "Train them again, or choose those shipped with the model"
            )
        self._engines.move_to_end(name)
        return self._engines[name]


class ConversationCache:
    """What each model has read of a few conversations, by ids that cannot be guessed, for faster replies.

    Kept with their model and dropped with it. A conversation whose entry is lost is read again
    from its messages. Used only on the engine's thread.
    """

    def __init__(self, most: int = MOST_CONVERSATIONS, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._models: WeakKeyDictionary[Any, OrderedDict[str, RunState]] = WeakKeyDictionary()

    def get(self, engine: Engine, name: str) -> RunState:
        """What its model has read under this id, an empty state if nothing; others may be dropped for it."""
        from medusa_core.engine import RunState  # noqa: PLC0415 - pulls in transformers

        kept = self._models.setdefault(engine.target, OrderedDict())
        if name not in kept:
            kept[name] = RunState(engine.target.new_cache(0))
        kept.move_to_end(name)
        while len(kept) > self._most or (
            len(kept) > 1 and sum(read.nbytes for read in kept.values()) > self._most_bytes
        ):
            kept.popitem(last=False)
        return kept[name]
