"""The speed of a step on the visitor's model: by phase beside its limit, or along a sweep, as in ``bench``.

Greedy, on the page's examples in order, the same that the command line takes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.errors import MedusaError
from medusa_core.evaluation.limits import Limit
from medusa_core.evaluation.other_work import OtherWork
from ui.records.lanes import PLAIN_METHOD
from ui.records.settings import RunSettings, Selection, greedy_settings, make_config
from ui.records.updates import StopFlag, Update
from ui.records.words import Words
from ui.runs.compare import NOTE_SECONDS, WARM_UP_TOKENS
from ui.runs.decode import ready
from ui.runs.other_work import let_browser_draw
from ui.serving.engines import Engines
from ui.serving.model_loader import Loading
from ui.serving.runner import Request

if TYPE_CHECKING:
    from medusa_core.engine import Engine
    from medusa_core.evaluation.turns import Turn

STEP, NODES, CONTEXT, BATCH, DTYPE = "step", "nodes", "context", "batch", "dtype"
PARTS = (STEP, NODES, CONTEXT, BATCH, DTYPE)
LEAST_TOKENS = 16  # tokens of a run, so that its steps outweigh its start
STOPPED = Words("Stopped: what is shown was measured until then.")
NOTHING = Words("Stopped before each had its turn: nothing new is shown rather than half of it.")
MEASURED = Words("Measured.")
FINDING_LIMITS = Words("Measuring bandwidth and peak of this machine…")


@dataclass(frozen=True)
class Effort:
    """The most to measure, and about how many seconds it should take, even with a slow model."""

    prompts: int
    tokens: int
    rounds: int
    seconds: float

    def within(self, seconds_per_token: float, runs: int, fewest: int = 2, unmeasured: int = 0) -> Effort:
        """The effort that fits its seconds if ``runs`` cases continue every prompt at plain decoding's pace.

        First prompts are cut, down to ``fewest``, then rounds and tokens; a slow model may still take longer.
        ``unmeasured`` is the number of rounds before those that count.
        """
        rounds = self.rounds + unmeasured
        whole = self.prompts * self.tokens * rounds * runs * seconds_per_token
        share = min(1.0, self.seconds / whole)
        prompts = max(min(fewest, self.prompts), int(self.prompts * share))
        share *= self.prompts / prompts
        left = max(1 + unmeasured, int(rounds * min(1.0, share)))
        share *= rounds / left
        tokens = max(min(LEAST_TOKENS, self.tokens), int(self.tokens * min(1.0, share)))
        return replace(self, prompts=prompts, rounds=left - unmeasured, tokens=tokens)


QUICK, EXACT = Effort(8, 48, 3, 20.0), Effort(8, 128, 5, 90.0)


@dataclass(frozen=True)
class SpeedUpdate(Update):
    """What is known so far: the record that ``bench --json`` prints, and the flags that ask for the same."""

    part: str = STEP
    record: dict[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class SpeedRequest(Request):
    """One of ``PARTS``, for plain decoding and one other method."""

    part: str
    method: str
    texts: tuple[str, ...]  # texts to continue: the examples of the page
    effort: Effort = QUICK
    selection: Selection = field(default_factory=Selection)

    def most_tokens(self) -> float:
        """All runs' tokens. Raises MedusaError for what the page does not measure."""
        if self.part not in PARTS:
            raise MedusaError(f"{self.part!r} cannot be measured: choose one of {', '.join(PARTS)}")
        make_config(self._settings())
        return 2.0 * self.effort.prompts * self.effort.tokens * self.effort.rounds

    def run(self, engines: Engines, flag: StopFlag) -> Generator[Update, None, None]:
        """Warm up, then time round after round; a stop keeps what was measured."""
        engine, config = yield from ready(engines, self._settings())
        methods = list(dict.fromkeys((PLAIN_METHOD, config.method)))
        prompts = [engine.encode(text) for text in self.texts]
        measured = _Measurement(engine, prompts, methods, config, self.effort, Limit(lambda: flag.stopped))
        if self.part == STEP:
            yield from measured.step()
            return
        if self.part == NODES and MEDUSA not in engine.drafts:
            raise MedusaError(f"{engine.info.base} has no Medusa heads for these trees: choose another sweep")
        if self.part == DTYPE and self.selection.engine:
            raise MedusaError("over dtypes the model is reloaded without heads trained here: sweep another")
        yield from measured.sweep(self.part, partial(engines.models.in_dtype, self.selection))

    def _settings(self) -> RunSettings:
        return greedy_settings(self.method, self.effort.tokens, self.selection)


@dataclass(frozen=True)
class _Measurement:
    """A measurement of methods on prompts, within an effort."""

    engine: Engine
    prompts: list[list[int]]
    methods: list[str]
    config: GenerationConfig
    effort: Effort
    limit: Limit

    def step(self) -> Generator[Update, None, None]:
        """A step of each method, by phase."""
        from medusa_core.evaluation.bench import Bench  # noqa: PLC0415 - transformers takes seconds

        flags, effort = yield from self._fitted(len(self.methods))
        prompts, config = self.prompts[: effort.prompts], self.config.changed(max_new_tokens=effort.tokens)
        bench = Bench(self.engine, prompts, self.methods, config, effort.rounds)
        for status, whole in _rounds(bench.turns(self.limit), len(prompts) * len(self.methods)):
            yield Update(status=status)
            if whole and (record := bench.record()):
                yield SpeedUpdate(status=status, record=record, flags=flags)
        yield Update(status=FINDING_LIMITS)
        record = bench.record()
        if record is None:
            yield Update(status=NOTHING)
            return
        yield SpeedUpdate(status=STOPPED if self.limit.stopped else MEASURED, record=record, flags=flags)

    def sweep(self, part: str, in_dtype: Callable[[str], Engine]) -> Generator[Update, None, None]:
        """One sweep; over dtypes, the model is loaded again in each one but its own, one after the other."""
        from medusa_core.evaluation.sweep import (  # noqa: PLC0415
            VALUES,
            Sweep,
            cases_of,
            filling,
            fitting,
            sweep_record,
            swept_dtypes,
        )

        own = self.engine
        dtypes = swept_dtypes(own.target.device.type) if part == DTYPE else (own.info.dtype,)
        values, note = fitting(part, own, VALUES.get(part, ()))
        cases = len(dtypes) * max(1, len(values)) * (1 if part == NODES else len(self.methods))
        texts = len(filling(self.prompts, max(values))) if part == BATCH else 0
        flags, effort = yield from self._fitted(cases, texts)
        config = self.config.changed(max_new_tokens=effort.tokens)
        prompts = filling(self.prompts[: effort.prompts], max(values) if part == BATCH else 0)
        engine, others = own, OtherWork()
        points: list[dict[str, Any]] = []

        def found(status: str, more: Sequence[dict[str, Any]]) -> SpeedUpdate:
            record = sweep_record(engine, part, [*points, *more], [note] if note else [], others)
            return SpeedUpdate(status=status, part=part, record=record, flags=(*flags, "--sweep", part))

        for dtype in dtypes:
            engine = own
            if dtype != own.info.dtype:
                yield Loading(status=Words("Loading the model in {0}…", dtype))
                engine = in_dtype(dtype)
            in_turn = cases_of(part, engine, self.methods, config, prompts, values)
            sweep = Sweep(in_turn, effort.rounds)
            for status, whole in _rounds(sweep.turns(self.limit), len(in_turn)):
                yield found(status, sweep.points()) if whole else Update(status=status)
            points += sweep.points()
            if self.limit.stopped:
                break
            yield found(MEASURED if dtype == dtypes[-1] else Words("Measured in {0}.", dtype), ())
        if self.limit.stopped:
            yield found(STOPPED, ()) if points else Update(status=NOTHING)

    def _fitted(self, runs: int, texts: int = 0) -> Generator[Update, None, tuple[tuple[str, ...], Effort]]:
        """The effort that this model allows, after a short run, and the flags of ``bench`` that ask for it.

        ``texts`` is how many a run needs in any case, where it needs more than the prompts.
        """
        from medusa_core.evaluation.turns import measure_run  # noqa: PLC0415

        yield Update(status=Words("Warming up…"))
        short = GenerationConfig.of(method=PLAIN_METHOD, max_new_tokens=WARM_UP_TOKENS, ignore_eos=True)
        for _ in range(2):  # the first run pays for memory and the choice of kernels
            found = measure_run(self.engine, self.prompts[0], short, self.limit)
        seconds = found.phase_ms["total"] / 1000 / found.steps
        effort = replace(self.effort, prompts=max(texts, min(self.effort.prompts, len(self.prompts))))
        # Steps are captured in a whole round before the first one.
        unmeasured = int(self.engine.target.choice.captured)
        fitted = effort.within(seconds, runs, max(2, texts), unmeasured)
        flags = ["--methods", ",".join(self.methods), "--max-new-tokens", str(fitted.tokens)]
        flags += ["--runs", str(fitted.rounds)]
        if fitted.prompts < len(self.prompts):
            flags += ["--limit", str(fitted.prompts)]
        return tuple(flags), fitted


def _rounds(turns: Iterable[Turn], in_a_round: int) -> Iterator[tuple[Words, bool]]:
    """Words for the status, and whether a round other than the last has just been completed.

    They come between two runs, and seldom, so as not to disturb them.
    """
    noted = perf_counter()
    for turn in turns:
        now = perf_counter()
        whole = turn.done % in_a_round == 0 and turn.done < turn.total
        if not whole and now - noted < NOTE_SECONDS:
            continue
        noted = now
        # The unmeasured runs before the first round do not come again.
        measured = sum(run.seconds for log in turn.logs.values() for run in log.runs)
        left = max(1, round(measured / turn.done * (turn.total - turn.done)))
        status = Words("Timing {0}: run {1} of {2}, about {3} s left", turn.name, turn.done, turn.total, left)
        yield status, whole
        if whole:
            let_browser_draw()
