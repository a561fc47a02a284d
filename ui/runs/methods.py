"""All methods that a model can run on one prompt, timed in turn: each one's tokens and milliseconds per step.

Greedy, so that all of them write the same text and only their ways to it are compared.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from medusa_core.config import GenerationConfig
from medusa_core.drafters import options_in_use, title_of
from medusa_core.evaluation.limits import Limit
from medusa_core.evaluation.other_work import OtherWork
from ui.records.lanes import PLAIN_METHOD
from ui.records.settings import (
    RunSettings,
    Selection,
    check_prompt,
    greedy_settings,
    make_config,
    page_methods,
)
from ui.records.updates import StopFlag, Update
from ui.records.words import Words, amount
from ui.runs.compare import NOTE_SECONDS, check_repetitions, warm_up_config
from ui.runs.decode import ready
from ui.runs.other_work import let_browser_draw
from ui.serving.engines import Engines
from ui.serving.runner import Request

if TYPE_CHECKING:
    from medusa_core.engine import Engine


@dataclass(frozen=True)
class MethodsUpdate(Update):
    """After each complete round: what is known so far, as ``bench`` writes it."""

    record: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # settings and tree by method
    note: str = ""  # settings that all runs shared besides the prompt


@dataclass(frozen=True)
class MethodsRequest(Request):
    """A prompt to be continued by every method, ``repetitions`` times each."""

    prompt: str
    max_new_tokens: float
    repetitions: int
    selection: Selection = field(default_factory=Selection)
    penalty: float = GenerationConfig.penalty
    penalty_window: float = GenerationConfig.penalty_window

    def most_tokens(self) -> float:
        """All methods' tokens. Raises MedusaError for a prompt or settings beyond the page's limits."""
        check_prompt(self.prompt)
        check_repetitions(self.repetitions)
        config = make_config(self._settings())
        return self.repetitions * config.max_new_tokens * len(page_methods())

    def run(self, engines: Engines, flag: StopFlag) -> Generator[Update, None, None]:
        """Warm up, then time round after round; a stop keeps the complete rounds."""
        engine, plain = yield from ready(engines, self._settings())
        yield from self._measured(engine, plain, Limit(lambda: flag.stopped))

    def _measured(
        self, engine: Engine, plain: GenerationConfig, limit: Limit
    ) -> Generator[Update, None, None]:
        from medusa_core.evaluation.bench import bench_record, make_runners  # noqa: PLC0415 - takes seconds
        from medusa_core.evaluation.turns import take_turns  # noqa: PLC0415

        ids = engine.encode(self.prompt)
        own = [name for name in page_methods() if name in engine.methods()]
        methods = list(dict.fromkeys([PLAIN_METHOD, *own]))  # in their order
        unmeasured = warm_up_config(engine, plain)
        for name, warm_up in make_runners(engine, [ids], methods, unmeasured, limit)[0].items():
            if not limit.stopped:
                yield Update(status=Words("Warming up: {0}", title_of(name)))
                warm_up(ids)
        note = ""
        if plain.penalises:
            words = amount(plain.penalty_window, "token")
            note = Words("All runs had a penalty of {0} on the last {1}.", f"{plain.penalty:g}", words)
        options = {name: options_in_use(engine.drafts, plain.changed(method=name)) for name in methods}
        runners, _ = make_runners(engine, [ids], methods, plain, limit)
        let_browser_draw()
        some, others, noted = False, OtherWork(), perf_counter()
        for turn in take_turns(runners, [ids], self.repetitions, limit, warm_up=False):
            if perf_counter() - noted > NOTE_SECONDS:
                noted, title = perf_counter(), title_of(turn.name)
                yield Update(status=Words("Timing {0}, run {1} of {2}", title, turn.done, turn.total))
            if turn.last:
                some, status = True, Words("Measured once; the next round refines it.")
                if turn.done == turn.total:
                    status = Words("Measured.")
                record = bench_record(engine, turn.logs, methods, plain)
                record["machine"] |= others.record()
                yield MethodsUpdate(status=status, record=record, options=options, note=note)
                if turn.done < turn.total:
                    let_browser_draw()
        if limit.stopped:
            kept = Words("Stopped: only the complete rounds are shown.")
            none = Words("Stopped before each method had its turn: nothing is shown rather than half of it.")
            yield Update(status=kept if some else none)

    def _settings(self) -> RunSettings:
        penalty = {"penalty": self.penalty, "penalty_window": int(self.penalty_window)}
        return greedy_settings(PLAIN_METHOD, int(self.max_new_tokens), self.selection, **penalty)
