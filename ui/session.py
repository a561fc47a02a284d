"""The only bridge between page and engine: loads it once, runs it for one visitor at a time.

What all visitors share is here (the loaded weights, the thread that computes, a lock); what belongs to a
run lives in the generator that serves it. Knows the messages of the views, but no component and no event of
the page.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from medusa_core.acceptance import rule_names
from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.tree import published_trees
from ui.chosen import DEFAULT, YOURS, Chosen
from ui.decode_run import decode_run
from ui.engine_shelf import EngineShelf
from ui.engine_thread import EngineThread
from ui.measure import Contest
from ui.run_settings import BY_BUDGET, check_prompt, make_config, own_tree
from ui.shipped import ASSETS
from ui.updates import StopFlag, Update

if TYPE_CHECKING:
    from medusa_core.engine import Engine

log = logging.getLogger(__name__)
T = TypeVar("T")


class Session:
    """One app's engine: what to load, the weights once they are loaded, and the lock of the runs."""

    def __init__(self, load: LoadConfig, assets: Path = ASSETS):
        self.assets = assets
        self._load = load
        self._engine: Engine | None = None
        self._own = EngineShelf()
        self._thread = EngineThread()
        self._running = threading.Lock()

    @property
    def busy(self) -> bool:
        """Whether a run has the engine now."""
        return self._running.locked()

    @property
    def load_config(self) -> LoadConfig:
        """What the shared engine is loaded from."""
        return self._load

    # ---- what the page offers --------------------------------------------------------------------------

    def badge(self) -> str:
        """Model, size, device and dtype of the shared engine, or what will be loaded."""
        if self._engine is None:
            name = Path(self._load.model).name if self._load.model else "embedded model"
            return f"{name} · not loaded yet"
        return _badge(self._engine)

    def rule_names(self) -> list[str]:
        """The acceptance rules there are."""
        return rule_names()

    def tree_choices(self) -> list[tuple[str, str]]:
        """(label, name) of each tree; the first is the default."""
        published = [(f"published: {name}", name) for name in published_trees()]
        return [("shipped with the heads", DEFAULT), ("by node budget", BY_BUDGET), *published]

    def accuracies_file(self) -> Path | None:
        """The accuracies that lie beside the heads to be loaded, when both are on this disk."""
        from medusa_core import checkpoints  # noqa: PLC0415 - takes a while, and the page should be up before

        folder = Path(self._load.model) if self._load.model else checkpoints.embedded_model()
        heads = Path(self._load.heads) if self._load.heads else checkpoints.heads_folder(folder)
        return checkpoints.beside_heads(heads, checkpoints.ACCURACIES_NAME) if heads else None

    def own_engine(self, chosen: Chosen) -> Engine:
        """The engine that a visitor made. Raises MedusaError when it is gone."""
        return self._thread.call(self._own.get, chosen.engine).engine

    # ---- running ---------------------------------------------------------------------------------------

    def load(self) -> str:
        """Load the engine, if that has not happened yet, and say what it is; an error is said as well."""
        try:
            self._thread.call(self._loaded)
        except MedusaError as error:
            return f"not loaded: {error}"
        return self.badge()

    def decode(self, prompt: str, settings: dict[str, Any], flag: StopFlag) -> Iterator[Update]:
        """One run for the Decode tab: a begin, a step each and an end message."""
        yield from self._guarded(self._decode(prompt, settings, flag))

    def compare(
        self, prompt: str, settings: dict[str, Any], repetitions: int, flag: StopFlag
    ) -> Iterator[Update]:
        """Medusa and plain decoding in turn, `repetitions` times each, then the race message."""
        yield from self._guarded(self._compare(prompt, settings, repetitions, flag))

    def on_engine(
        self, work: Callable[[Engine], Generator[T, None, None]], chosen: Chosen | None = None
    ) -> Iterator[T | Update]:
        """Any other run: what `work(engine)` yields, computed on the engine's thread while no other run is.

        The engine is loaded first where that has not happened; it is the visitor's own where `chosen` names
        one. Errors end the run with an `Update` that says so, exactly as in `decode`.
        """
        yield from self._guarded(self._with_engine(work, chosen or Chosen()))

    def add_engine(self, label: str, source: LoadConfig | Engine) -> str:
        """Keep one more engine beside the shared one and return its id, for `Chosen.with_engine`.

        `source` is what to load, its folders made by the app and never named by a visitor, or an engine that
        is there already, such as a `dataclasses.replace` of another one, which shares the weights. Waits for
        a run that is going on, unless called from within one. Raises MedusaError when loading fails.
        """
        if self._thread.is_current:
            return self._add_engine(label, source)
        with self._running:
            return self._thread.call(self._add_engine, label, source)

    def _add_engine(self, label: str, source: LoadConfig | Engine) -> str:
        if isinstance(source, LoadConfig):
            from medusa_core.loading import load_engine  # noqa: PLC0415 - transformers takes seconds

            source = load_engine(source)
        return self._own.add(label, source)

    def _guarded(self, updates: Generator[T, None, None]) -> Iterator[T | Update]:
        """One run at a time, on the engine's thread; errors become a visible line, and the app goes on."""
        with self._running, closing(self._thread.iterate(updates)) as pulled:
            try:
                yield from pulled
            except MedusaError as error:
                yield Update(status=str(error), problem=True)
            except Exception as error:
                log.exception("a run failed")
                words = f"The run failed ({type(error).__name__}); the terminal has the details."
                yield Update(status=words, problem=True)

    def _decode(self, prompt: str, settings: dict[str, Any], flag: StopFlag) -> Generator[Update, None, None]:
        config = make_config(settings)
        check_prompt(prompt)
        engine = yield from self._ready(settings)
        yield from decode_run(engine, engine.encode(prompt), config, flag)

    def _compare(
        self, prompt: str, settings: dict[str, Any], repetitions: int, flag: StopFlag
    ) -> Generator[Update, None, None]:
        ours = make_config(settings)
        check_prompt(prompt)
        engine = yield from self._ready(settings)
        if engine.heads is None:
            raise MedusaError(f"{engine.info.base} has no Medusa heads: name them with --heads")
        yield from Contest.of(engine, engine.encode(prompt), ours).run(repetitions, flag)

    def _with_engine(
        self, work: Callable[[Engine], Generator[T, None, None]], chosen: Chosen
    ) -> Generator[T | Update, None, None]:
        yield from work((yield from self._chosen_engine(YOURS if chosen.engine else DEFAULT, chosen)))

    def _ready(self, settings: dict[str, Any]) -> Generator[Update, None, Engine]:
        """The engine for these settings; what the visitor should know while the model loads is yielded."""
        chosen = settings.get("chosen") or Chosen()
        engine = yield from self._chosen_engine(settings.get("heads", DEFAULT), chosen)
        if engine.heads is None:
            return engine
        if settings["tree"] == BY_BUDGET:
            tree = engine.budget_tree(int(settings["budget"]) - 1)
        elif settings["tree"] == YOURS:
            tree = own_tree(chosen)
            tree.check(engine.heads.count)
        else:
            return engine
        # A copy with another default tree: shares the weights, and no other run sees it.
        return replace(engine, default_tree=tree)

    def _chosen_engine(self, heads: str, chosen: Chosen) -> Generator[Update, None, Engine]:
        if heads == YOURS and not chosen.engine:
            raise MedusaError("there are no heads of yours: train some, or choose those shipped")
        if heads == YOURS:
            own = self._own.get(chosen.engine)
            yield Update(badge=f"your heads “{own.label}” · {_badge(own.engine)}")
            return own.engine
        if self._engine is None:
            yield Update(status="Loading the model…")
        engine = self._loaded()
        yield Update(badge=self.badge())
        return engine

    def _loaded(self) -> Engine:
        """The engine; called on the engine's thread alone, which also keeps two from loading at once."""
        if self._engine is None:
            # Imported here: transformers takes seconds, and the page should be up before it.
            from medusa_core.loading import load_engine  # noqa: PLC0415

            self._engine = load_engine(self._load)
        return self._engine


def _badge(engine: Engine) -> str:
    info = engine.info
    heads = f"{info.head_count} Medusa heads" if info.head_count else "no Medusa heads"
    name = "embedded model" if info.base == "embedded" else Path(info.base).name
    return f"{name}, {heads} · {info.parameters / 1e6:.1f} M parameters · {info.device} · {info.dtype}"
