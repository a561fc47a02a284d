"""The only bridge between page and engine: what all visitors of one app share.

What belongs to a run lives in the generator that serves it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa_core.config import LoadConfig
from medusa_core.drafters import method_names
from medusa_core.errors import MedusaError
from ui.records.examples import ASSETS
from ui.records.settings import Selection
from ui.records.updates import StopFlag, Update
from ui.runs.chat import chat_notice
from ui.serving.engines import Engines
from ui.serving.kept import KeptFigures, KeptRuns
from ui.serving.models import Models
from ui.serving.page_routes import PageChannel
from ui.serving.policy import Policy
from ui.serving.runner import Request, Runner
from ui.serving.turns import TimeShare
from ui.serving.update_stream import Acks

if TYPE_CHECKING:
    from medusa_core.drafters import Draft
    from medusa_core.engine import Engine


MEASURING_PAUSES = (3, 10, 30)  # seconds before each try


class Session:
    """One app's engines, the runner that works with one of them at a time, and the runs that pages keep."""

    def __init__(
        self,
        load: LoadConfig,
        assets: Path = ASSETS,
        policy: Policy | None = None,
        gpu: Callable[..., Any] | None = None,
    ):
        """`gpu` comes from `ui.serving.zero_gpu.claim`: unless None, runs borrow their GPU through it."""
        self.assets = assets
        self.policy = policy or Policy()
        self.channel = PageChannel()
        self.kept_runs = KeptRuns()
        self.models = Models(load, self.policy, elsewhere=gpu is not None)
        self.figures = KeptFigures(assets, self.models.config_of, not self.policy.public and gpu is None)
        self._engines = Engines(self.models)
        self._runner = Runner(self._engines, self.policy, gpu)
        self._measuring: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        return self._runner.turns.taken

    @property
    def trains(self) -> bool:
        """Whether a training run has the engine or, as it gives way to others, waits for its next turn."""
        return self._runner.turns.shared

    def methods_without_weights(self, selection: Selection) -> frozenset[str]:
        """Methods for which neither the visitor's model nor their own heads bring weights.

        Empty until the model is loaded, since they are not known before.
        """
        engine = self.models.at_hand(selection)
        if engine is None:
            return frozenset()
        known = set(engine.methods())
        if selection.engine:
            with suppress(MedusaError):  # their heads are gone
                known |= set(self.own_engine(selection).methods())
        return frozenset(method_names()) - known

    def drafts_at_hand(self, selection: Selection) -> Mapping[str, Draft]:
        """The drafters' weights of the visitor's model, by method; empty until it is loaded."""
        engine = self.models.at_hand(selection)
        return engine.drafts if engine is not None else {}

    def own_engine(self, selection: Selection) -> Engine:
        """The engine that a visitor made. Raises MedusaError when it is gone."""
        return self._runner.call(self._engines.trained.get, selection.engine)

    def load(self) -> str:
        """Load the engine unless it is loaded; returns its description, or the error, as text."""
        return self._badge_after(self.load_own)

    def load_own(self) -> None:
        """Load the engine unless it is loaded. Raises MedusaError."""
        if self._runner.borrows:
            return  # loaded at the start, or by each run that finds it missing
        self._runner.call(self.models.own)
        if self._measuring is None:
            self._measuring = threading.Thread(
                target=self._measure_step_times, name="step times", daemon=True
            )
            self._measuring.start()

    def _measure_step_times(self) -> None:
        """Time steps for the tree "auto" between two runs; a try fails while a browser draws the page."""
        for pause in MEASURING_PAUSES:
            time.sleep(pause)
            if self._runner.call_between(self.models.measure):
                return

    def load_at_start(self) -> str:
        """Load on the caller's thread: only the thread that claimed the GPUs can load for them."""
        return self._badge_after(self.models.own)

    def _badge_after(self, load: Callable[[], object]) -> str:
        try:
            load()
        except MedusaError as error:
            return f"not loaded: {error}"
        return self.models.badge(Selection())

    def run(self, request: Request, flag: StopFlag, acks: Acks | None = None) -> Generator[Any, None, None]:
        """The updates of a run, made when its turn comes. An error is an update as well; the app goes on.

        With ``acks`` they come no faster than the page draws them, several merged into one where needed.
        """
        return self._runner.run(request, flag, acks)

    def on_engine(
        self,
        work: Callable[[Engine], Generator[Any, None, None]],
        selection: Selection | None = None,
        flag: StopFlag | None = None,
        share: TimeShare | None = None,
        kind: type[Update] = Update,
    ) -> Generator[Any, None, None]:
        """Any other kind of run: what `work(engine)` yields, as in `run`. With ``share`` it gives way.

        Updates before the work begins, such as on waiting for its turn, come as ``kind``, like its own.
        """
        for item in self.run(EngineWork(work, selection or Selection(), share), flag or StopFlag()):
            other = isinstance(item, Update) and not isinstance(item, kind)
            yield kind(**vars(item)) if other else item

    def chat_notice(self, selection: Selection) -> str:
        """What a visitor should know before chatting with their model; empty while it is not loaded."""

        def look() -> str:
            there = selection.model is not None or self._runner.borrows
            engine = self.models.at_hand(selection) if there else self.models.own()
            return chat_notice(engine) if engine else ""

        try:
            return self._runner.call(look)
        except MedusaError as error:
            return str(error)

    def add_engine(self, engine: Engine) -> str:
        """Keep one more engine beside the shared one and return its id, for `Selection.with_engine`.

        Waits for a run that is going on, unless called from within one.
        """
        return self._runner.call_between(self._engines.trained.add, engine)


@dataclass(frozen=True)
class EngineWork(Request):
    """``work(engine)`` on the visitor's engine; a function that can be pickled where a GPU is borrowed."""

    work: Callable[[Engine], Generator[Any, None, None]]
    selection: Selection
    share: TimeShare | None = None

    def run(self, engines: Engines, flag: StopFlag) -> Generator[Any, None, None]:
        """What the work yields."""
        engine = yield from engines.ready(self.selection, self.selection.heads)
        yield from self.work(engine)
