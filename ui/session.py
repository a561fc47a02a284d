"""The only bridge between page and engine: loads it once, runs it for one visitor at a time.

What all visitors share is here (the loaded weights, the thread that computes, a lock); what belongs to a
run lives in the generator that serves it. Knows the messages of the views, but no component and no event of
the page.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from medusa_core.acceptance import rule_names
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.tree import published_trees
from ui.decode_view import layout_key, message_begin, message_end, message_step
from ui.engine_thread import EngineThread
from ui.measure import Contest
from ui.shipped import ASSETS
from ui.updates import StopFlag, Update

if TYPE_CHECKING:
    from medusa_core.engine import Engine

MAX_PROMPT_CHARACTERS = 8000
MOST_TOKENS = 512  # of a run in the page: several visitors share one engine
SHOW_SECONDS = 0.025  # a step at least: a browser flooded with steps does not hear a click on Stop
BY_BUDGET = "node budget"
log = logging.getLogger(__name__)


class Session:
    """One app's engine: what to load, the weights once they are loaded, and the lock of the runs."""

    def __init__(self, load: LoadConfig, assets: Path = ASSETS):
        self.assets = assets
        self._load = load
        self._engine: Engine | None = None
        self._thread = EngineThread()
        self._running = threading.Lock()

    @property
    def busy(self) -> bool:
        """Whether a run has the engine now."""
        return self._running.locked()

    # ---- what the page offers --------------------------------------------------------------------------

    def badge(self) -> str:
        """Model, size, device and dtype, or what will be loaded."""
        if self._engine is None:
            name = Path(self._load.model).name if self._load.model else "embedded model"
            return f"{name} · not loaded yet"
        info = self._engine.info
        heads = f"{info.head_count} Medusa heads" if info.head_count else "no Medusa heads"
        name = "embedded model" if info.base == "embedded" else Path(info.base).name
        return f"{name}, {heads} · {info.parameters / 1e6:.1f} M parameters · {info.device} · {info.dtype}"

    def rule_names(self) -> list[str]:
        """The acceptance rules there are."""
        return rule_names()

    def tree_choices(self) -> list[tuple[str, str]]:
        """(label, name) of each tree; the first is the default."""
        published = [(f"published: {name}", name) for name in published_trees()]
        return [("shipped with the heads", "default"), ("by node budget", BY_BUDGET), *published]

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

    def _guarded(self, updates: Generator[Update, None, None]) -> Iterator[Update]:
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
        from medusa_core.trace import TraceBuilder  # noqa: PLC0415 - pulls in transformers

        config = make_config(settings)
        check_prompt(prompt)
        engine = yield from self._ready(settings)
        run, known, seq = uuid.uuid4().hex, set(), 0
        started = shown = perf_counter()
        ids = engine.encode(prompt)
        builder = TraceBuilder(engine, config, ids)
        yield Update(message_begin(seq, run, builder.begin()), "Reading the prompt…")
        with closing(engine.stream(ids, config)) as steps:
            for step in steps:
                record = builder.add(step)
                seq += 1
                message = message_step(seq, run, record, known)
                known.add(layout_key(record))
                words = f"Step {seq}: kept {len(step.emitted)} of {len(record['nodes'])} candidates"
                yield Update(message, words)
                if flag.stopped:
                    break
                sleep(max(0.0, SHOW_SECONDS - (perf_counter() - shown)))
                shown = perf_counter()
        trace = builder.finish()
        yield Update(
            message_end(seq + 1, run, trace),
            _summary(trace, perf_counter() - started),
            trace=trace,
        )

    def _compare(
        self, prompt: str, settings: dict[str, Any], repetitions: int, flag: StopFlag
    ) -> Generator[Update, None, None]:
        ours = make_config(settings)
        check_prompt(prompt)
        engine = yield from self._ready(settings)
        if engine.heads is None:
            raise MedusaError(f"{engine.info.base} has no Medusa heads: name them with --heads")
        yield from Contest.of(engine, engine.encode(prompt), ours).run(repetitions, flag)

    def _ready(self, settings: dict[str, Any]) -> Iterator[Update]:
        """Yield what the visitor should know while the model loads; return the engine for these settings."""
        if self._engine is None:
            yield Update(status="Loading the model…")
        engine = self._loaded()
        yield Update(badge=self.badge())
        if settings["tree"] == BY_BUDGET and engine.heads is not None:
            # A copy with another default tree: shares the weights, and no other run sees it.
            engine = replace(engine, default_tree=engine.budget_tree(int(settings["budget"]) - 1))
        return engine

    def _loaded(self) -> Engine:
        """The engine; called on the engine's thread alone, which also keeps two from loading at once."""
        if self._engine is None:
            # Imported here: transformers takes seconds, and the page should be up before it.
            from medusa_core.engine import load_engine  # noqa: PLC0415

            self._engine = load_engine(self._load)
        return self._engine


def make_config(settings: dict[str, Any]) -> GenerationConfig:
    """The engine's settings from the page's. Raises MedusaError for values outside their range."""
    budgeted = settings["tree"] == BY_BUDGET
    if not budgeted and settings["tree"] not in ("default", *published_trees()):
        # The engine would also take a file's name here; a visitor of the page must not name files.
        raise MedusaError(f"no tree is called {settings['tree']!r}: choose one of the list")
    tokens = int(settings["max_new_tokens"])
    if tokens > MOST_TOKENS:
        raise MedusaError(f"{tokens} new tokens asked for, the page allows {MOST_TOKENS}: lower the number")
    return GenerationConfig(
        method="medusa",
        acceptance=settings["acceptance"],
        temperature=float(settings["temperature"]),
        epsilon=float(settings["epsilon"]),
        delta=float(settings["delta"]),
        tree="default" if budgeted else settings["tree"],
        max_new_tokens=tokens,
        seed=int(settings["seed"] or 0),
    )


def check_prompt(prompt: str) -> None:
    """Raises MedusaError for a prompt that is empty or too long for the page."""
    if not prompt or not prompt.strip():
        raise MedusaError("The prompt is empty: write a few words, or choose one of the examples.")
    if len(prompt) > MAX_PROMPT_CHARACTERS:
        raise MedusaError(
            f"The prompt has {len(prompt)} characters, the page takes {MAX_PROMPT_CHARACTERS}: shorten it."
        )


def _summary(trace: dict[str, Any], seconds: float) -> str:
    output = trace["output"]
    ended = {
        "eos": "the text ended",
        "stop": "a stop string came",
        "length": "the token budget is used up",
        "context": "the model's context is full",
        "cancelled": "stopped",
    }[output["finish_reason"]]
    return (
        f"{output['new_tokens']} tokens in {output['steps']} steps, "
        f"{output['tokens_per_step']:.2f} a step: {ended}. "
        f"{output['tokens_per_second']:.0f} tokens/s while the page drew along, {seconds:.1f} s in all; "
        "Side by side times it alone."
    )
