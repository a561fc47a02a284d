"""Training within minutes that can be stopped at any time: text is written, each stage is timed and sized.

``fit`` knows its numbers beforehand, from a probe, so that it can be interrupted and resumed with the same;
here each stage takes what time is left when it begins. Both run the same recipes. Paper §2.2.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from medusa_core.errors import MedusaError
from medusa_core.evaluation.limits import Limit
from medusa_core.training.config import MOST_STEPS, Medusa1Config, SelfDistillConfig
from medusa_core.training.recipes import train

if TYPE_CHECKING:
    from medusa_core.training.loop import Progress

LOADING, WRITING, TIMING, TRAINING, TRAINED = "loading", "writing", "timing", "training", "trained"
Record = TypeVar("Record")
_WRITING_SHARE = 0.35  # share of the time in which the model writes its own text
_TIMED_STEPS = 4  # timed steps; the first is not counted
_GRACE = 1.25  # times its share a stage may take before it is ended early
_LOOK_SECONDS = 15.0  # between two looks at held-out text
_LOOKS = 4  # at least
_LEAST_STEPS = 8  # least steps of a stage, so that its looks show more than the first guesses


@dataclass(frozen=True)
class Job:
    """What to train: name and settings of each stage, whose folder, start and length are set when it begins.

    With ``text`` the model first writes what the stages read, until its share of the time is up.
    """

    folder: Path
    seconds: float
    stages: Sequence[tuple[str, Medusa1Config]]
    text: SelfDistillConfig | None = None
    steps: int = 0  # of each stage; 0: as many as there is time for


@dataclass(frozen=True)
class JobProgress:
    """What a job does; with TRAINED the settings of the stage and the folder of what it has learned.

    LOADING comes before a part that loads model and text, for which no time is counted.
    """

    part: str
    stage: str = ""
    progress: Progress | None = None  # the recipe's progress; None while steps are timed
    seconds_left: float = 0.0  # of writing or training
    ended: str = ""  # why the stage ends with this step, which is not its last
    result: tuple[Medusa1Config, Path] | None = None
    loading: float = 0.0  # seconds so far that loading has taken

    @property
    def done(self) -> Progress:
        """How far the recipe is. Raises ValueError while steps are timed, of which nothing is kept."""
        if self.progress is None:
            raise ValueError(f"{self.part} has no progress")
        return self.progress


def run_job(
    job: Job, stop: Callable[[], bool] = lambda: False, clock: Callable[[], float] = perf_counter
) -> Generator[JobProgress, None, None]:
    """Write text and train stage after stage; stopped, what was learned by then is the result.

    A stage that took no step has none. The job's seconds are those of ``clock``, which may leave out the time
    between two records, without those that loading takes: they begin with the first step. Raises MedusaError
    as the recipes do, and where the time is too short for a training to show anything.
    """
    working = _WorkClock(clock)
    begun = Limit(stop, clock=working)
    whole = begun.within(job.seconds)
    if job.text is not None:
        yield JobProgress(LOADING)
        writing = whole.within(_WRITING_SHARE * job.seconds)
        with closing(train(job.text, writing.reached)) as records:
            for record in working.after_loading(records):
                if whole.stopped:  # the text of a whole batch may take a minute
                    return
                if record.folder is None:
                    yield JobProgress(
                        WRITING, progress=record, seconds_left=writing.left, loading=working.loading
                    )
    start = ""
    for number, (name, settings) in enumerate(job.stages):
        if whole.stopped:
            return
        yield JobProgress(LOADING, name, loading=working.loading)
        config = replace(settings, start=start, out=str(job.folder / f"stage{number + 1}"))
        times: list[float] = []
        with closing(_timed(config, job.folder / "timing", _TIMED_STEPS)) as timed:
            for seconds in working.after_loading(timed):
                times.append(seconds)
                yield JobProgress(TIMING, name, loading=working.loading)
                if whole.stopped:
                    return
        seconds = _typical(times)
        share = whole.left / (len(job.stages) - number)
        if not (start or job.steps):
            _require_time(job, whole.left, seconds)
        steps = job.steps or max(1, int(share / seconds))
        config = replace(
            config,
            tokens=steps * config.batch_tokens,
            evaluate_every=max(1, min(round(_LOOK_SECONDS / seconds), -(-steps // _LOOKS))),
        )
        with closing(_train(name, config, begun.within(max(_GRACE * share, 1.0)))) as trained:
            for found in working.after_loading(trained):
                start = str(found.result[1]) if found.result else start
                yield found


class _WorkClock:
    """A clock that leaves out the seconds in which a part of a job loads, until its first record."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.loading = 0.0  # seconds left out so far
        self._clock = clock
        self._stands: float | None = None  # its time while something loads

    def __call__(self) -> float:
        return self._clock() - self.loading if self._stands is None else self._stands

    def after_loading(self, records: Iterator[Record]) -> Iterator[Record]:
        """The same records; the clock stands still until the first."""
        self._stands, before = self(), self._clock()
        for record in records:
            if self._stands is not None:
                self.loading += self._clock() - before
                self._stands = None
            yield record
        self._stands = None


def _require_time(job: Job, left: float, step: float) -> None:
    """Raises MedusaError where the seconds ``left`` are too few for steps of so many seconds each."""
    needed = _LEAST_STEPS * step * len(job.stages)
    if left < needed:
        writing = _WRITING_SHARE if job.text is not None else 0.0
        timing = max(0.0, job.seconds * (1 - writing) - left)
        least = math.ceil((timing + needed) / (1 - writing) / 30) / 2
        raise MedusaError(
            f"{job.seconds / 60:g} min is too short: a training step takes {step:.2g} s here, and "
            f"held-out text tells nothing before {_LEAST_STEPS} of them: give it {least:g} min or more"
        )


def step_seconds(config: Medusa1Config, scratch: Path, steps: int, enough: float) -> float:
    """Median seconds of a training step, without the first, which loads; ``scratch`` is used and removed.

    ``steps`` are taken at most; fewer when those after the first took ``enough`` seconds.
    """
    times: list[float] = []
    with closing(_timed(config, scratch, steps)) as timed:
        for seconds in timed:
            times.append(seconds)
            if sum(times[1:]) > enough:
                break
    return _typical(times)


def _typical(times: list[float]) -> float:
    return max(1e-4, median(times[1:] or times))


def _timed(config: Medusa1Config, scratch: Path, steps: int) -> Generator[float, None, None]:
    """The seconds of each of so many steps; ``scratch`` is used and removed."""
    # Nothing is looked at or saved, and the last step, which would be, is not reached.
    config = replace(
        config, out=str(scratch), tokens=(steps + 1) * config.batch_tokens,
        evaluate_every=MOST_STEPS, checkpoint_every=MOST_STEPS,
    )  # fmt: skip
    records, before = train(config), perf_counter()
    try:
        for _ in islice(records, steps):
            yield perf_counter() - before
            before = perf_counter()
    finally:
        with suppress(_SeenEnough):
            records.throw(_SeenEnough())
        shutil.rmtree(scratch, ignore_errors=True)


class _SeenEnough(Exception):  # noqa: N818 - no error
    """Thrown into a training, which then stops without saving a checkpoint."""


def _train(name: str, config: Medusa1Config, limit: Limit) -> Generator[JobProgress, None, None]:
    """A stage: a record a step, and the result unless no step was taken.

    Time that is up ends it after a step: on a slow machine loading alone may take what it was given.
    """
    why, taken = "", 0

    def end() -> bool:
        nonlocal why
        if taken or limit.stopped:
            why = why or limit.why
        return bool(why)

    with closing(train(config, end)) as records:
        for record in records:
            taken = record.step
            if record.folder is None:
                left = config.batch_tokens * (record.steps - record.step)
                seconds = left / max(1.0, record.tokens_per_second)
                ended = why if record.step < record.steps else ""
                yield JobProgress(TRAINING, name, record, seconds, ended=ended)
            elif record.step:
                yield JobProgress(TRAINED, name, record, result=(config, record.folder))
