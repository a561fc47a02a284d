"""Methods side by side on the same prompts: how fast each is, what a step takes, and the least it could take.

Speedup, over ``none`` or over transformers' ``hf``, is what ``speedup`` says; figures are medians over
rounds, with the lowest and highest round as the spread.
Acceleration, overhead and speedup are the terms of the paper, §3.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
import transformers

from medusa_core.config import GenerationConfig
from medusa_core.drafters import require_weights
from medusa_core.engine import Engine
from medusa_core.engine.summary import PHASES
from medusa_core.errors import MedusaError
from medusa_core.evaluation.limits import NO_LIMIT, Limit
from medusa_core.evaluation.llama_cpp_peer import LLAMA_CPP_PEERS, PACKAGE, LlamaCppRunner
from medusa_core.evaluation.other_work import OtherWork
from medusa_core.evaluation.peers import PEERS, PeerError, PeerRunner
from medusa_core.evaluation.speedup import speedup
from medusa_core.evaluation.step_limits import Ceilings, step_limits
from medusa_core.evaluation.turns import (
    Measurement,
    MethodLog,
    Runner,
    Turn,
    complete_part,
    measure_run,
    take_turns,
)
from medusa_core.hardware.processor import core_count, cpu_name, instruction_limit, instruction_set

BASELINE = "none"
TRANSFORMERS = "hf"
ALL_PEERS = PEERS | LLAMA_CPP_PEERS
# Seconds until the threads of a peer sleep. They spin behind its last operation, 40 ms and more, and would
# take a processor from whoever has the next turn.
SPINNING = 0.1


class Bench:
    """A measurement: ``turns`` makes it, ``record`` is what ``bench --json`` prints of it so far."""

    def __init__(
        self,
        engine: Engine,
        prompts: Sequence[list[int]],
        methods: Sequence[str],
        config: GenerationConfig,
        rounds: int,
        places: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """``places`` says by kind of text where its prompts stand among ``prompts``: each kind then has
        figures of its own under "kinds". Raises MedusaError for a method that cannot run.
        """
        for name in methods:
            if name not in ALL_PEERS:
                require_weights(name, engine.drafts, engine.info.base)
        self._engine, self._config = engine, config
        self._prompts, self._methods, self._rounds = prompts, methods, rounds
        self._places = places or {}
        self._ceilings = Ceilings(engine)
        self._others: OtherWork | None = None
        self._logs: Mapping[str, MethodLog] = {}
        self._left_out: dict[str, str] = {}

    def turns(self, limit: Limit = NO_LIMIT) -> Iterator[Turn]:
        """All runs, one after the other. Raises MedusaError where none of the methods can run.

        A peer that cannot run here has no figures; "left_out" of the record names it with the reason.
        """
        runners, self._left_out = make_runners(
            self._engine, self._prompts, self._methods, self._config, limit
        )
        self._others = OtherWork()
        captured = self._engine.target.choice.captured
        for turn in take_turns(runners, self._prompts, self._rounds, limit, captured=captured):
            self._logs = turn.logs
            yield turn

    def record(self) -> dict[str, Any] | None:
        """The figures of the part that all methods have run; None while there is none.

        The first call also measures what the machine can do at best.
        """
        logs = complete_part(self._logs)
        if not logs or self._others is None:
            return None
        record = bench_record(self._engine, logs, list(logs), self._config)
        record["machine"] |= self._others.record()
        for name, log in logs.items():
            if log.has_phases:
                config = self._config.changed(method=name)
                record["methods"][name] |= step_limits(self._engine, config, log.whole_step(), self._ceilings)
        return record | {"kinds": self._kinds(logs), "left_out": self._left_out}

    def _kinds(self, logs: Mapping[str, MethodLog]) -> dict[str, Any]:
        """The figures of each kind of text, once all of its prompts were run."""
        run = len(next(iter(logs.values())).rounds[0])
        kinds = {}
        for kind, of_kind in self._places.items():
            if max(of_kind) < run:
                parts = {name: log.only(of_kind) for name, log in logs.items()}
                kinds[kind] = {name: _record(name, parts) for name in parts}
        return kinds


def run_bench(
    engine: Engine,
    prompts: list[list[int]],
    methods: list[str],
    config: GenerationConfig,
    rounds: int,
    progress: Callable[[Turn], None] = lambda turn: None,
    places: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, Any]:
    """The whole of a ``Bench``; ``progress`` is called after each run. Raises MedusaError."""
    bench = Bench(engine, prompts, methods, config, rounds, places)
    for turn in bench.turns():
        progress(turn)
    record = bench.record()
    assert record is not None  # every method had all its turns
    return record


def bench_record(
    engine: Engine, logs: Mapping[str, MethodLog], methods: Sequence[str], config: GenerationConfig
) -> dict:
    """The record of methods that were measured in turn."""
    rounds = logs[methods[0]].rounds
    return {
        "machine": machine_record(engine) | _libraries(methods),
        "model": model_record(engine),
        "settings": {
            "prompts": len(rounds[0]),
            "runs": len(rounds),
            "max_new_tokens": config.max_new_tokens,
            "acceptance": config.acceptance,
            "temperature": config.temperature,
            **(
                {"penalty": config.penalty, "penalty_window": config.penalty_window}
                if config.penalises
                else {}
            ),
            **config.truncation,
            "options": {name: str(value) for name, value in config.options.items()},
            "peers": {name: dict(ALL_PEERS[name].arguments) for name in methods if name in ALL_PEERS},
        },
        "methods": {name: _record(name, logs) for name in methods},
    }


def _libraries(methods: Sequence[str]) -> dict[str, str]:
    """Versions of the libraries that ran beside torch."""
    found = {"transformers": transformers.__version__}
    return found | ({"llama_cpp_python": version(PACKAGE)} if LLAMA_CPP_PEERS.keys() & set(methods) else {})


def machine_record(engine: Engine) -> dict:
    """A record of the machine that the figures were measured on."""
    device = engine.target.output_device
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "processor": gpu or cpu_name(),
        "gpu": gpu,
        "cores": core_count(),
        "instructions": instruction_set(),
        "limited_to": "" if gpu else instruction_limit(),
        "threads": engine.target.threads_used,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def model_record(engine: Engine) -> dict:
    """A record of the model that was measured."""
    info = engine.info
    return {
        name: getattr(info, name)
        for name in ("name", "base", "heads", "dtype", "device", "parameters", "forward")
    }


def make_runners(
    engine: Engine,
    prompts: Sequence[list[int]],
    methods: Sequence[str],
    config: GenerationConfig,
    limit: Limit = NO_LIMIT,
) -> tuple[dict[str, Runner], dict[str, str]]:
    """A runner for each method that can run, and why the others cannot. Raises MedusaError if none can."""
    runners: dict[str, Runner] = {}
    left_out: dict[str, str] = {}
    for name in methods:
        if name not in ALL_PEERS:
            runners[name] = partial(measure_run, engine, config=config.changed(method=name), limit=limit)
            continue
        peer = (LlamaCppRunner if name in LLAMA_CPP_PEERS else PeerRunner)(engine, name, config)
        try:
            peer.prepare(max(prompts, key=len))
        except PeerError as error:
            left_out[name] = str(error)
        else:
            runners[name] = _peer_runner(name, peer)
    if not runners:
        name, reason = next(iter(left_out.items()))
        raise MedusaError(f"{name} cannot run here ({reason}): name another in --methods")
    return runners, left_out


def _peer_runner(name: str, peer: PeerRunner | LlamaCppRunner) -> Runner:
    def run(prompt: list[int]) -> Measurement:
        try:
            done = peer(prompt)
        except PeerError as error:
            raise MedusaError(
                f"{name} failed after a prompt of {len(prompt)} tokens ({error}): leave it out of --methods, "
                "or lower --max-new-tokens"
            ) from error
        time.sleep(SPINNING)
        return done

    return run


def _record(name: str, logs: Mapping[str, MethodLog]) -> dict:
    log = logs[name]
    rates = log.rates()
    record: dict = {
        "tokens_per_second": round(statistics.median(rates), 2),  # end to end
        "tokens_per_second_range": [round(min(rates), 2), round(max(rates), 2)],
        "tokens_per_step": round(log.tokens_per_step(), 3),
        "new_tokens": sum(len(run.tokens) for run in log.runs),
    }
    if log.has_phases:
        record["decode_tokens_per_second"] = round(statistics.median(log.decode_rates()), 2)
        record["tree_nodes"] = log.nodes
        record["step_ms"] = round(log.mean_step("total"), 3)
        record["phase_ms"] = {phase: round(log.mean_step(phase), 3) for phase in PHASES}
    if BASELINE in logs:
        base = logs[BASELINE]
        record |= _speedup("speedup", rates, base)
        record["identical_outputs"] = f"{log.same_texts(base)} of {len(log.rounds[0])}"
        if log.has_phases:
            record["overhead"] = round(log.mean_step("total") / base.mean_step("total"), 3)
    if TRANSFORMERS in logs:
        record |= _speedup(f"speedup_over_{TRANSFORMERS}", rates, logs[TRANSFORMERS])
    return record


def _speedup(key: str, rates: Sequence[float], base: MethodLog) -> dict:
    found = speedup(rates, base.rates())
    return {key: round(found.middle, 3), f"{key}_range": [round(found.low, 3), round(found.high, 3)]}
