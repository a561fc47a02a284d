"""The Train tab's run: a job's records as words and curves, its heads as an engine of the session.

The work is done by `medusa_core.training.fit.timed` and `medusa_core.evaluation.compare_heads`. A run has a
temporary folder, deleted when the run ends; the finished heads stay as an engine of the session.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

from medusa_core.checkpoints.sources import find_sources
from medusa_core.errors import MedusaError
from medusa_core.evaluation.limits import Effort, Limit
from medusa_core.training.config import Medusa1Config
from medusa_core.training.fit.timed import LOADING, TIMING, TRAINED, WRITING, JobProgress, run_job
from ui.figures.training import Curves, LossPoint, ScorePoint
from ui.records.examples import example_texts
from ui.records.settings import Selection
from ui.records.updates import StopFlag, Update
from ui.records.words import Words, joined, sentences
from ui.runs.session import Session
from ui.serving.turns import TimeShare
from ui.tabs.train.download import Adapter, HeadPackage, base_name, card
from ui.tabs.train.plan import NAMES, SOURCES, Plan, make_job
from ui.tabs.trees.timing import measuring_words

if TYPE_CHECKING:
    from medusa_core.engine import Engine
    from medusa_core.evaluation.speedup import Gain
    from medusa_core.training.loop import Metrics


NOTE_SECONDS = 0.5  # between two changes of the status line
DRAW_SECONDS = 4.0  # between two drawings of the curves: each replaces the chart on the page
# Measuring takes half a minute in all: each of its three parts is cut short after ten seconds.
EFFORT = Effort(counted_tokens=64, sizes=(1, 2, 4, 6, 8, 12, 16), rounds=3, round_tokens=32, seconds=10.0)
RACE_TOKENS = 64  # a prompt, when fresh and new heads race plain decoding


@dataclass(frozen=True)
class Trained:
    """Heads that are ready to be used: their selection, their gain, and what is packed with them."""

    selection: Selection
    gain: Gain | None  # None: the run was stopped before anything was measured
    package: HeadPackage


@dataclass(frozen=True)
class TrainUpdate(Update):
    """New curves from time to time, and the heads at the end."""

    curves: Curves | None = None
    trained: Trained | None = None


def train_heads(
    session: Session, plan: Plan, flag: StopFlag, selection: Selection | None = None
) -> Iterator[TrainUpdate]:
    """Run the plan on the visitor's model. Errors end it with a lesson whose update says what is wrong."""
    # Heads start fresh, whichever are in use.
    model = Selection(model=selection.model if selection else None)
    share = TimeShare()

    def work(engine: Engine) -> Generator[TrainUpdate | None, None, None]:
        plan.check()
        with TemporaryDirectory(prefix="medusa-train-", ignore_cleanup_errors=True) as name:
            try:
                yield from _Run(session, engine, model, plan, flag, share).updates(Path(name))
            except MedusaError as error:
                # The folder's name is a local path, which is not shown.
                raise MedusaError(str(error).replace(f"{name}{os.sep}", "").replace(name, "")) from error

    yield from session.on_engine(work, model, flag, share, kind=TrainUpdate)


class History:
    """Collects the curves of a run over its stages; the steps count on across stages."""

    def __init__(self) -> None:
        self._losses: list[LossPoint] = []
        self._scores: list[ScorePoint] = []
        self._stages: list[tuple[int, str]] = []
        self._offset = 0

    def begin(self, stage: str) -> None:
        """Another stage starts; an empty name leaves no mark."""
        self._offset = self._losses[-1].step if self._losses else 0
        if stage:
            self._stages.append((self._offset, stage))

    def add(self, step: int, metrics: Metrics) -> None:
        step += self._offset
        losses = _by_head(metrics, "loss")
        if losses:
            self._losses.append(LossPoint(step, losses, metrics.get("loss/base")))
        kinds = list(dict.fromkeys(name.split("/")[1] for name in metrics if name.startswith("heldout/")))
        if kinds:
            rows = (
                [_by_head(metrics, f"heldout/{kind}/{name}") for kind in kinds] for name in ("top1", "top5")
            )
            top1, top5 = (tuple(map(fmean, zip(*each, strict=True))) for each in rows)
            self._scores.append(ScorePoint(step, top1, top5))

    def curves(self) -> Curves:
        return Curves(tuple(self._losses), tuple(self._scores), tuple(self._stages))


@dataclass
class _Run:
    """One training run, on the engine's thread."""

    session: Session
    engine: Engine
    model: Selection
    plan: Plan
    flag: StopFlag
    share: TimeShare
    history: History = field(default_factory=History)
    stage: str = ""

    def updates(self, folder: Path) -> Generator[TrainUpdate | None, None, None]:
        """Training, then measuring. A run stopped in a stage goes on with what was learned so far."""
        started, loading = self.share.clock(), 0.0
        result: tuple[Medusa1Config, Path] | None = None
        load = self.session.models.config_of(self.model)
        base = str(find_sources(load.model, load.heads).base)  # folder of the model below the heads
        name = base_name(self.engine, base, public=self.session.policy.public)
        job = make_job(self.plan, base, name, folder, self.session.assets, self.engine.target.context)
        noted = drawn = 0.0
        with closing(run_job(job, lambda: self.flag.stopped, self.share.clock)) as records:
            for record in records:
                result, loading = record.result or result, max(loading, record.loading)
                self._collect(record, several=len(job.stages) > 1)
                now = perf_counter()
                if record.progress is None or record.ended or record.part == WRITING:
                    yield self._said(_words(record))
                elif record.part != TRAINED and now - noted > NOTE_SECONDS:
                    draws = now - drawn > DRAW_SECONDS
                    noted, drawn = now, now if draws else drawn
                    yield self._said(_words(record), self.history.curves() if draws else None)
                else:
                    yield None  # others may have their turn after each step
        if result is None:
            yield TrainUpdate(status=Words("Stopped before the first step: nothing was learned."))
            return
        yield TrainUpdate(curves=self.history.curves())
        config, trained = result
        took = self.share.clock() - started - loading
        yield from self._measured(config, trained, name, _time(took), _time(loading))

    def _collect(self, record: JobProgress, *, several: bool) -> None:
        if record.part == LOADING:
            return
        if record.part == TIMING:
            if record.stage != self.stage:
                self.stage = record.stage
                self.history.begin(record.stage if several else "")
        elif record.part not in (WRITING, TRAINED):
            self.history.add(record.done.step, record.done.metrics)

    def _measured(
        self, config: Medusa1Config, folder: Path, base: str, duration: str, loading: str
    ) -> Generator[TrainUpdate | None, None, None]:
        """Keep the heads as an engine of the session, with a tree that fits them and this machine."""
        # These pull in transformers.
        from medusa_core.evaluation.compare_heads import Gained, measure_gain  # noqa: PLC0415
        from medusa_core.evaluation.measure_heads import HeadMeasurement  # noqa: PLC0415
        from medusa_core.training.fit.measuring import load_result  # noqa: PLC0415

        # Another Stop ends the measuring; the heads stay usable.
        self.flag.stopped = False
        yield TrainUpdate(status=Words("Loading the new heads…"))
        engine = self._renamed(
            load_result(config, folder, self.session.models.config_of(self.model), self.engine)
        )
        prompts = [engine.encode(text) for text in example_texts(self.session.assets)]
        limit = Limit(lambda: self.flag.stopped, clock=self.share.clock)
        for found in measure_gain(engine, prompts, EFFORT, RACE_TOKENS, limit):
            if isinstance(found, Gained):
                gained = found
            elif isinstance(found, HeadMeasurement):
                yield self._said(measuring_words(found, "prompt"))
            elif found.last:
                words = Words("Racing plain decoding: prompt {0} of {1}", found.prompt, len(prompts))
                yield self._said(words)
            else:
                yield None
        label = f"{NAMES[self.plan.recipe]}, {duration}"
        what = f"Trained in the app: {label}, on {SOURCES[self.plan.source]}."
        package = HeadPackage(base, card(base, what, gained), Adapter.beside(folder))
        selection = self.model.with_engine(self.session.add_engine(gained.engine), label)
        trained = Trained(selection, gained.gain, package)
        words = Words("Trained in {0} after {1} of loading.", duration, loading)
        if self.plan.writes:
            words = Words("Trained in {0}, writing included, after {1} of loading.", duration, loading)
        shared = self.share.words
        ready = Words("The heads are ready to be used.")
        words = sentences(words, ready, Words("It {0}.", shared) if shared else "")
        yield TrainUpdate(status=words, trained=trained)

    def _said(self, words: str, curves: Curves | None = None) -> TrainUpdate:
        """The status line: where the run is, and how much of its time it got."""
        shared = self.share.words
        return TrainUpdate(status=joined(" · ", [words, shared]) if shared else words, curves=curves)

    def _renamed(self, engine: Engine) -> Engine:
        """The engine under the name that people know, not its folder's."""
        base = self.engine.info.base
        name = " + ".join([base, *engine.info.drafts])
        return replace(engine, info=replace(engine.info, base=base, name=name, heads="trained in the app"))


def _words(record: JobProgress) -> str:
    """The status line of a training job."""
    if record.part == LOADING:
        return Words("Loading what is trained; the minutes count from the first step…")
    loaded = Words("loading took {0}", _time(record.loading))
    if record.part == TIMING:
        return joined(" · ", [Words("Timing a few steps ({0})…", record.stage), loaded])
    done = record.done
    if record.ended:
        return Words("{0} at step {1}: keeping what was learned so far…", record.ended, done.step)
    speed, left = f"{done.tokens_per_second:,.0f}", _time(record.seconds_left)
    if record.part == WRITING:
        written = f"{done.tokens:,}"
        words = Words(
            "The model writes text to learn from: {0} tokens, {1} tokens/s, {2} left for it",
            written, speed, left,
        )  # fmt: skip
        return joined(" · ", [words, loaded])
    return Words(
        "Training {0}: step {1} of {2}, {3} tokens/s, {4} left",
        record.stage, done.step, done.steps, speed, left,
    )  # fmt: skip


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return Words("{0} min {1} s", minutes, f"{rest:02d}") if minutes else Words("{0} s", rest)


def _by_head(metrics: Metrics, name: str) -> tuple[float, ...]:
    """The values `name/1`, `name/2` … of the heads."""
    return tuple(value for key, value in metrics.items() if re.fullmatch(rf"{name}/\d+", key))
