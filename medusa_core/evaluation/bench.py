"""Methods side by side on the same prompts.

Methods (or trees, settings, engines: ``interleave`` takes any) are interleaved prompt by prompt and their
order rotates, so that a machine whose speed drifts treats them alike. A round is all prompts once; the
figures of a method are medians over rounds, with the lowest and highest round as the spread. Speedup is the
ratio to ``none`` or to transformers' ``hf`` within a round, so both sides of it were measured minutes apart
at most. Words: acceleration, overhead and speedup as in the paper, §3.
"""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import transformers

from medusa_core.config import GenerationConfig
from medusa_core.drafters import method
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.evaluation.limits import NO_LIMIT, Limit
from medusa_core.evaluation.peers import PEERS, PeerError, PeerRunner
from medusa_core.evaluation.step_limits import Ceilings, MeanStep, limit_entries, step_limits
from medusa_core.loading.remembered import cpu_name
from medusa_core.summary import PHASES

BASELINE = "none"
TRANSFORMERS = "hf"


@dataclass(frozen=True)
class Measurement:
    """One method on one prompt. ``seconds`` is the whole call, the reading of the prompt included."""

    tokens: list[int]
    seconds: float
    steps: int
    phase_ms: dict[str, float]  # summed over steps; empty for a method that is not ours
    nodes: int = 0  # of the largest tree, with the root
    rows: int = 0  # of all trees
    positions: int = 0  # committed before each step, summed


Runner = Callable[[list[int]], Measurement]


@dataclass
class MethodLog:
    """Measurements of one method by round."""

    rounds: list[list[Measurement]] = field(default_factory=list)

    @property
    def has_phases(self) -> bool:
        """Whether the method is ours, so that its steps were timed."""
        return bool(self.rounds[0][0].phase_ms)

    def only(self, places: Iterable[int]) -> MethodLog:
        """The part that belongs to some of the prompts, by their places in a round."""
        chosen = list(places)
        return MethodLog([[r[place] for place in chosen] for r in self.rounds])

    def rates(self) -> list[float]:
        """End-to-end tokens per second of each round."""
        return [sum(len(m.tokens) for m in r) / sum(m.seconds for m in r) for r in self.rounds]

    def decode_rates(self) -> list[float]:
        """Tokens per second of each round by the time inside steps."""
        return [
            1000 * sum(len(m.tokens) for m in r) / sum(m.phase_ms["total"] for m in r) for r in self.rounds
        ]

    def tokens_per_step(self) -> float:
        """Over all rounds."""
        runs = [m for r in self.rounds for m in r]
        return sum(len(m.tokens) for m in runs) / sum(m.steps for m in runs)

    def whole_step(self) -> MeanStep:
        """All that a step did and took, on average."""
        runs = [m for r in self.rounds for m in r]
        steps = sum(m.steps for m in runs)
        return MeanStep(
            nodes=sum(m.rows for m in runs) / steps,
            positions=sum(m.positions for m in runs) / steps,
            accepted=self.tokens_per_step(),
            ms={phase: self.mean_step(phase) for phase in PHASES},
        )

    def mean_step(self, phase: str) -> float:
        """Median over rounds of the mean milliseconds of a step in a phase."""
        return statistics.median(
            sum(m.phase_ms[phase] for m in r) / sum(m.steps for m in r) for r in self.rounds
        )


@dataclass(frozen=True)
class Turn:
    """After each run: whose it was, how many of how many, on which prompt, and all measurements so far."""

    name: str
    done: int
    total: int
    prompt: int  # its number in the round, from 1
    last: bool  # whether all have had their turn on this prompt
    logs: Mapping[str, MethodLog]


def run_bench(
    engine: Engine,
    prompts: list[list[int]],
    methods: list[str],
    config: GenerationConfig,
    rounds: int,
    progress: Callable[[str], None] = lambda name: None,
    places: Mapping[str, Sequence[int]] | None = None,
) -> dict:
    """Measure and return the record that ``bench --json`` prints. Raises MedusaError.

    A peer that cannot run here has no figures; "left_out" names it with the reason. ``places`` says by kind
    of text where its prompts stand among ``prompts``: each kind then has figures of its own under "kinds".
    """
    _require_methods(engine, methods)
    runners, left_out = _runners(engine, prompts, methods, config)
    logs = interleave(runners, prompts, rounds, progress)
    kinds = {}
    for kind, of_kind in (places or {}).items():
        parts = {name: log.only(of_kind) for name, log in logs.items()}
        kinds[kind] = {name: _record(name, parts) for name in parts}
    record = bench_record(engine, logs, list(runners), config)
    ceilings = Ceilings(engine)
    for name, log in logs.items():
        if log.has_phases:
            found = step_limits(engine, config.changed(method=name), log.whole_step(), ceilings)
            record["methods"][name] |= limit_entries(found)
    return record | {"kinds": kinds, "left_out": left_out}


def bench_record(
    engine: Engine, logs: Mapping[str, MethodLog], methods: Sequence[str], config: GenerationConfig
) -> dict:
    """The record of methods that were measured in turn."""
    rounds = logs[methods[0]].rounds
    return {
        "machine": machine_record(engine) | {"transformers": transformers.__version__},
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
            **({"min_p": config.min_p} if config.temperature > 0 and config.min_p > 0 else {}),
            "options": {name: str(value) for name, value in config.options.items()},
            "peers": {name: dict(PEERS[name].arguments) for name in methods if name in PEERS},
        },
        "methods": {name: _record(name, logs) for name in methods},
    }


def _require_methods(engine: Engine, methods: Sequence[str]) -> None:
    """Raise MedusaError for a method that is unknown or whose weights are not loaded."""
    for name in methods:
        if name not in PEERS and method(name) and name not in engine.methods():
            raise MedusaError(
                f"method {name} needs weights: name them with --heads, or leave it out of --methods"
            )


def interleave(
    runners: Mapping[str, Runner],
    prompts: Sequence[list[int]],
    rounds: int,
    progress: Callable[[str], None] = lambda name: None,
) -> dict[str, MethodLog]:
    """Run every runner on every prompt, ``rounds`` times over, and return the measurements by its name."""
    logs: Mapping[str, MethodLog] = {name: MethodLog() for name in runners}
    for turn in take_turns(runners, prompts, rounds):
        logs = turn.logs
        progress(turn.name)
    return dict(logs)


def take_turns(
    runners: Mapping[str, Runner],
    prompts: Sequence[list[int]],
    rounds: int,
    limit: Limit = NO_LIMIT,
    once: Sequence[str] = (),
    *,
    warm_up: bool = True,
) -> Iterator[Turn]:
    """Run every runner on every prompt, ``rounds`` times over; those named in ``once`` in the first round.

    The runners take turns prompt by prompt and the order rotates by one each time. Each is called once
    beforehand, unmeasured. Stopped, it ends before the next run; out of time, when all have had the prompt.
    """
    # First calls pay for allocation and kernel selection.
    for run in runners.values() if warm_up else ():
        if limit.stopped:
            return
        run(prompts[0])
    logs = {name: MethodLog() for name in runners}
    done, total = 0, len(prompts) * (len(once) + rounds * (len(runners) - len(once)))
    for round_number in range(rounds):
        names = [name for name in runners if round_number == 0 or name not in once]
        for name in names:
            logs[name].rounds.append([])
        for number, prompt in enumerate(prompts):
            for turn, name in enumerate(_rotated(names, round_number + number), start=1):
                if limit.stopped:
                    return
                logs[name].rounds[-1].append(runners[name](prompt))
                done += 1
                yield Turn(name, done, total, number + 1, turn == len(names), logs)
            if limit.reached():
                return


def machine_record(engine: Engine) -> dict:
    """What the figures were measured on."""
    device = engine.target.output_device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()
    return {
        "processor": name,
        "threads": engine.target.threads or engine.target.usual_threads,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def model_record(engine: Engine) -> dict:
    """What was measured."""
    info = engine.info
    return {name: getattr(info, name) for name in ("name", "dtype", "device", "parameters", "forward")}


def _rotated(methods: list[str], by: int) -> Iterator[str]:
    shift = by % len(methods)
    yield from methods[shift:] + methods[:shift]


def _runners(
    engine: Engine, prompts: Sequence[list[int]], methods: Sequence[str], config: GenerationConfig
) -> tuple[dict[str, Runner], dict[str, str]]:
    """A runner for each method that can run, and why the others cannot. Raises MedusaError if none can."""
    runners: dict[str, Runner] = {}
    left_out: dict[str, str] = {}
    for name in methods:
        if name not in PEERS:
            runners[name] = _own_runner(engine, config.changed(method=name))
            continue
        peer = PeerRunner(engine, name, config)
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


def _own_runner(engine: Engine, config: GenerationConfig) -> Runner:
    return lambda prompt: measure_run(engine, prompt, config)


def _peer_runner(name: str, peer: PeerRunner) -> Runner:
    def run(prompt: list[int]) -> Measurement:
        try:
            done = peer(prompt)
        except PeerError as error:
            raise MedusaError(
                f"{name} failed after a prompt of {len(prompt)} tokens ({error}): leave it out of --methods, "
                "or lower --max-new-tokens"
            ) from error
        return Measurement(done.tokens, done.seconds, done.steps, {})

    return run


def measure_run(engine: Engine, prompt: list[int], config: GenerationConfig) -> Measurement:
    """One timed run of our own loop."""
    summary = engine.summary(config)
    for step in engine.stream(prompt, config):
        summary.add(step)
    return Measurement(
        summary.token_ids,
        summary.elapsed,
        summary.steps,
        summary.phase_ms,
        summary.nodes,
        summary.rows,
        summary.positions,
    )


def _record(name: str, logs: Mapping[str, MethodLog]) -> dict:
    log = logs[name]
    rates = log.rates()
    record: dict = {
        "tokens_per_second": round(statistics.median(rates), 2),  # end to end
        "tokens_per_second_range": [round(min(rates), 2), round(max(rates), 2)],
        "tokens_per_step": round(log.tokens_per_step(), 3),
    }
    if log.has_phases:
        record["decode_tokens_per_second"] = round(statistics.median(log.decode_rates()), 2)
        record["tree_nodes"] = max(m.nodes for r in log.rounds for m in r)
        record["step_ms"] = round(log.mean_step("total"), 3)
        record["phase_ms"] = {phase: round(log.mean_step(phase), 3) for phase in PHASES[:-1]}
    if BASELINE in logs:
        base = logs[BASELINE]
        record |= _speedup("speedup", rates, base)
        same = [a.tokens == b.tokens for a, b in zip(log.rounds[0], base.rounds[0], strict=True)]
        record["identical_outputs"] = f"{sum(same)} of {len(same)}"
        if log.has_phases:
            record["overhead"] = round(log.mean_step("total") / base.mean_step("total"), 3)
    if TRANSFORMERS in logs:
        record |= _speedup(f"speedup_over_{TRANSFORMERS}", rates, logs[TRANSFORMERS])
    return record


def _speedup(key: str, rates: Sequence[float], base: MethodLog) -> dict:
    """Median, lowest and highest of the rounds' ratios."""
    ratios = [ours / theirs for ours, theirs in zip(rates, base.rates(), strict=True)]
    return {
        key: round(statistics.median(ratios), 3),
        f"{key}_range": [round(min(ratios), 3), round(max(ratios), 3)],
    }
