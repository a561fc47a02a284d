"""The bridge from the page to training: text, stages of a recipe, stopping, and what the new heads gain.

A run lives in a temporary folder that is gone when the run ends; the finished heads live on as an engine of
the session. It computes on the engine's thread while no other run does, and is bounded by the minutes asked
for. Knows the session and the recipes' stream of records, but no component of the page.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.training.config import Medusa1Config
from medusa_core.training.recipes import result_of, train
from ui.figures.training import Curves
from ui.records.selection import Chosen
from ui.records.updates import StopFlag, Update
from ui.session import Session
from ui.tabs.train.curves import History
from ui.tabs.train.gain import Gain, measure_gain
from ui.tabs.train.head_zip import Adapter, Belongings, base_name, card
from ui.tabs.train.plan import NAMES, SOURCES, WRITING_SHARE, Plan, save_text, stage_config, writing_config

if TYPE_CHECKING:
    from medusa_core.engine import Engine
    from medusa_core.training.loop import Progress

NOTE_SECONDS = 0.5  # between two changes of the status line
DRAW_SECONDS = 4.0  # between two drawings of the curves: each replaces the chart on the page
LOOK_SECONDS = 15.0  # between two looks at held-out text
TIMED_STEPS = 4  # of which the first is not counted
GRACE = 1.25  # times its share a stage may take before it is ended early


@dataclass(frozen=True)
class Trained:
    """Heads that are ready to be used: the id of their engine, what they are worth, what goes with them."""

    engine: str
    label: str
    gain: Gain | None  # None: stopped before anything was measured
    belongings: Belongings
    model: LoadConfig | None = None  # they were trained for, as in `Chosen`


@dataclass(frozen=True)
class Lesson:
    """One change of the page: words, new curves now and then, and at the end the heads."""

    update: Update
    curves: Curves | None = None
    trained: Trained | None = None


@dataclass(frozen=True)
class _Stage:
    """A stage that is about to run, timed: its settings, seconds a step, and when its time is up."""

    name: str
    config: Medusa1Config
    step_seconds: float
    deadline: float


class _Limit:
    """Where a stage ends before its last step: Stop, or its time. Says so from the first time it did."""

    def __init__(self, flag: StopFlag, deadline: float) -> None:
        self.why = ""
        self._flag = flag
        self._deadline = deadline

    def reached(self) -> bool:
        """Whether the stage ends here."""
        if not self.why and self._flag.stopped:
            self.why = "Stopped"
        elif not self.why and perf_counter() > self._deadline:
            self.why = "The time is up"
        return bool(self.why)


def train_heads(
    session: Session, plan: Plan, flag: StopFlag, chosen: Chosen | None = None
) -> Iterator[Lesson]:
    """Run the plan on the visitor's model. Errors end it with a lesson whose update says what is wrong."""
    model = Chosen(model=chosen.model) if chosen else Chosen()  # fresh heads, whatever heads are in use

    def work(engine: Engine) -> Generator[Lesson, None, None]:
        plan.check()
        with TemporaryDirectory(prefix="medusa-train-", ignore_cleanup_errors=True) as name:
            try:
                yield from _Run(session, engine, model, plan, flag, Path(name)).lessons()
            except MedusaError as error:
                # The folder's name is a local path, which is not shown.
                raise MedusaError(str(error).replace(f"{name}{os.sep}", "").replace(name, "")) from error

    for item in session.on_engine(work, model, flag):
        yield Lesson(item) if isinstance(item, Update) else item


class _Run:
    """One training run, on the engine's thread."""

    def __init__(
        self, session: Session, engine: Engine, model: Chosen, plan: Plan, flag: StopFlag, folder: Path
    ) -> None:
        self._session = session
        self._engine = engine
        self._plan = plan
        self._flag = flag
        self._folder = folder
        self._context = engine.target.context
        self._model = model
        self._load = session.load_config_of(model)
        self._base = _base_of(self._load)
        self._name = base_name(engine, self._base, public=session.policy.public)
        self._history = History()
        self._started = perf_counter()

    def lessons(self) -> Generator[Lesson, None, None]:
        """Text, stages, measuring. Stopped in a stage, the run goes on with what was learned so far."""
        data = yield from self._text()
        result: tuple[Medusa1Config, Path] | None = None
        stages = self._plan.stages()
        for number, (name, settings) in enumerate(stages):
            if self._flag.stopped:
                break
            folder = self._folder / f"stage{number + 1}"
            config = stage_config(self._plan, settings, self._base, data, folder, self._context)
            config = replace(config, base_name=self._name, start=str(result[1]) if result else "")
            stage = yield from self._timed(name, config, last=len(stages) - number)
            self._history.begin(name if len(stages) > 1 else "")
            result = (yield from self._train(stage)) or result
        yield Lesson(Update(), self._history.curves())
        if result is None:
            yield Lesson(Update(status="Stopped before the first step: nothing was learned."))
            return
        yield from self._measured(*result)

    def _text(self) -> Generator[Lesson, None, Path]:
        """The folder or file to train on."""
        if not self._plan.writes:
            return save_text(self._plan, self._folder / "data")
        config = writing_config(self._plan, self._base, self._folder, self._session.assets, self._context)
        end = self._started + WRITING_SHARE * self._plan.seconds
        with closing(train(config)) as records:
            for progress in records:
                left = max(0.0, end - perf_counter())
                words = f"The model writes text to learn from: {progress.tokens:,} tokens"
                yield Lesson(Update(status=f"{words}, {_speed(progress)}, {_time(left)} left for it"))
                if self._flag.stopped or left == 0:
                    break
        return self._folder / "answers"

    def _timed(self, name: str, config: Medusa1Config, last: int) -> Generator[Lesson, None, _Stage]:
        """The stage with its length, from the time of a few steps; ``last`` is how many stages are left."""
        yield Lesson(Update(status=f"Timing a few steps ({name})…"))
        scratch = self._folder / "timing"
        times: list[float] = []
        with closing(train(replace(config, out=str(scratch)))) as records:
            before = perf_counter()
            for _ in records:
                times.append(perf_counter() - before)
                if len(times) >= TIMED_STEPS or self._flag.stopped:
                    break
                before = perf_counter()
        shutil.rmtree(scratch, ignore_errors=True)
        seconds = max(1e-4, median(times[1:] or times))
        now = perf_counter()
        share = max(0.0, self._started + self._plan.seconds - now) / last
        steps = self._plan.steps or max(1, int(share / seconds))
        config = replace(
            config,
            tokens=steps * config.batch_tokens,
            evaluate_every=max(1, min(round(LOOK_SECONDS / seconds), -(-steps // 4))),
        )
        return _Stage(name, config, seconds, now + max(GRACE * share, 1.0))

    def _train(self, stage: _Stage) -> Generator[Lesson, None, tuple[Medusa1Config, Path] | None]:
        """Run a stage; its settings and the folder of its heads, or None when no step was taken."""
        noted = drawn = 0.0
        step, limit = 0, _Limit(self._flag, stage.deadline)
        with closing(train(stage.config, limit.reached)) as records:
            for progress in records:
                if progress.folder is not None:
                    return (stage.config, progress.folder) if step else None
                step = progress.step
                self._history.add(step, progress.metrics)
                now = perf_counter()
                if limit.why and step < progress.steps:
                    words = f"{limit.why} at step {step}: keeping what was learned so far…"
                    yield Lesson(Update(status=words))
                elif now - noted > NOTE_SECONDS:
                    draws = now - drawn > DRAW_SECONDS
                    noted, drawn = now, now if draws else drawn
                    curves = self._history.curves() if draws else None
                    yield Lesson(Update(status=_training_words(stage, progress)), curves)
        return None

    def _measured(self, config: Medusa1Config, folder: Path) -> Generator[Lesson, None, None]:
        """Put the heads on the session's shelf, with a tree that fits them and this machine."""
        seconds = perf_counter() - self._started
        # Another Stop ends the measuring; the heads stay usable.
        self._flag.stopped = False
        yield Lesson(Update(status="Loading the new heads…"))
        engine = self._new_engine(config, folder)
        gain: Gain | None = None
        for item in measure_gain(engine, self._session.assets, self._flag):
            if isinstance(item, str):
                yield Lesson(Update(status=item))
            else:
                engine, gain = item
        label = f"{NAMES[self._plan.recipe]}, {_time(seconds)}"
        what = f"Trained in the app: {label}, on {SOURCES[self._plan.source]}."
        belongings = Belongings(self._name, card(self._name, what, engine, gain), Adapter.beside(folder))
        number = self._session.add_engine(label, engine)
        trained = Trained(number, label, gain, belongings, self._model.model)
        writing = ", writing included" if self._plan.writes else ""
        words = f"Trained in {_time(seconds)}{writing}. The heads are ready to be used."
        yield Lesson(Update(status=words), trained=trained)

    def _new_engine(self, config: Medusa1Config, folder: Path) -> Engine:
        from medusa_core.loading.load import load_engine  # noqa: PLC0415 - transformers takes seconds

        result = result_of(config, folder)
        engine = load_engine(replace(self._load, model=result.model, heads=result.heads))
        base = self._engine.info.base  # the name people know, not that of the folder it was found in
        name = " + ".join([base, *engine.info.drafts])
        info = replace(engine.info, base=base, name=name, heads="trained in the app")
        return replace(_sharing(engine, self._engine), info=info)


def _base_of(load: LoadConfig) -> str:
    """The folder of the model below the heads that the app has loaded."""
    from medusa_core.checkpoints.sources import find_sources  # noqa: PLC0415

    return str(find_sources(load.model, load.heads).base)


def _sharing(engine: Engine, other: Engine) -> Engine:
    """The engine on the other one's weights where they are the same, so that no second copy stays."""
    import torch  # noqa: PLC0415 - takes a while, and the page should be up before

    ours, theirs = (each.target.model.state_dict() for each in (engine, other))
    same = ours.keys() == theirs.keys() and all(
        ours[name].dtype == theirs[name].dtype and torch.equal(ours[name], theirs[name]) for name in ours
    )
    return replace(engine, target=other.target) if same else engine


def _training_words(stage: _Stage, progress: Progress) -> str:
    left = (progress.steps - progress.step) * progress.tokens / max(1, progress.step)
    seconds = left / max(1.0, progress.tokens_per_second)
    return (
        f"Training {stage.name}: step {progress.step} of {progress.steps}, {_speed(progress)}, "
        f"{_time(seconds)} left"
    )


def _speed(progress: Progress) -> str:
    return f"{progress.tokens_per_second:,.0f} tokens/s"


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
