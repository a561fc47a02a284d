"""The times of a step by tree size on this machine, measured in about two seconds and remembered.

With the heads' accuracies they say which tree makes most tokens per second here; that tree is "auto". Paper
§2.3.3 and figure 4b. ``latency`` measures the same with more care, over real texts.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from time import perf_counter, thread_time
from typing import Any, NamedTuple

from medusa_core.config import ENGINE_VERSION, GenerationConfig
from medusa_core.drafters import drafters_of
from medusa_core.drafters.medusa import AUTO, NAME, medusa_draft, with_heads
from medusa_core.drafters.medusa.draft import MedusaDraft
from medusa_core.engine import Engine, RunState
from medusa_core.errors import MedusaError
from medusa_core.evaluation.forward_times import any_tokens
from medusa_core.evaluation.latency import runs_by_nodes
from medusa_core.evaluation.limits import NO_LIMIT, Limit
from medusa_core.loading.tuning import keep, machine_key, may_measure, recall
from medusa_core.trees.budget import PLAIN, LatencyPoint, parse_latency, step_times, unsteady
from medusa_core.trees.tree import Topology

SECONDS = 1.6  # after which no size is timed more often than it needs
_SIZES = (16, 64, PLAIN, 4, 32, 8, 2, 24, 12, 48)  # nodes with the root; those that tell most come first
_FEWEST = 3  # sizes that are timed in any case
_ROUNDS = 12  # in which every size has its turn, the first one unmeasured
_STEPS = 3  # steps of a run; the first is not counted, since it pays for the prompt's traces in the caches
_STEADY_STEPS = 6  # of each size, where steps are not long
_LEAST_SHARE = 0.85  # least share of the time in which this thread had its core
_LONG = 100.0  # ms of a step from where one is enough
_PROMPT = 48  # tokens


def lacks_step_times(engine: Engine) -> bool:
    """Whether the engine lacks step times that may be measured and would choose its tree."""
    draft = _draft(engine)
    return draft is not None and not draft.latency and may_measure()


def with_known_step_times(engine: Engine) -> Engine:
    """A copy of the engine with the step times remembered for it and this machine, if there are any."""
    if not lacks_step_times(engine):
        return engine
    try:
        points = parse_latency({"latency": recall(_key(engine))})
    except MedusaError:  # the remembered file was changed by hand
        return engine
    return with_heads(engine, latency=tuple(points)) if points else engine


def with_step_times(engine: Engine, limit: Limit = NO_LIMIT) -> Engine:
    """A copy of the engine with step times: remembered ones, or measured now and remembered.

    An engine without heads, or with heads whose accuracies nobody measured, comes back as it is: its step
    times would choose no tree. So does one on a machine that is too busy to measure, one whose measurement
    is stopped, and one that cannot run; the run says why.
    """
    engine = with_known_step_times(engine)
    if not lacks_step_times(engine):
        return engine
    begun, computed = perf_counter(), thread_time()
    try:
        points = measure_step_times(engine, limit=limit)
    except MedusaError:
        return engine
    share = (thread_time() - computed) / (perf_counter() - begun)
    had_its_core = engine.target.device.type != "cpu" or share > _LEAST_SHARE
    if not (had_its_core and _is_steady(points)):  # remembered, they would choose the tree from now on
        return engine
    keep(_key(engine), [point.model_dump(exclude_none=True) for point in points])
    return with_heads(engine, latency=tuple(points))


def measure_step_times(
    engine: Engine, seconds: float = SECONDS, limit: Limit = NO_LIMIT
) -> list[LatencyPoint]:
    """Times of a step of the engine's own loop, size by size in turn, by number of nodes.

    For each size the lower quartile of its steps counts, since disturbances only make steps longer. Where
    steps are slow, fewer sizes are timed, each as often as it needs.

    All runs share one cache, so that the prompt is read once. Raises MedusaError as a run does.
    """
    draft = medusa_draft(engine)
    run = GenerationConfig(max_new_tokens=_STEPS * (draft.heads.count + 1), ignore_eos=True)
    configs = runs_by_nodes(run, draft, _SIZES)
    steps: dict[int, list[float]] = {size: [] for size in configs}
    state = RunState(engine.target.new_cache(_PROMPT))
    prompt = any_tokens(engine.target, min(_PROMPT, engine.target.context // 4))
    if engine.target.choice.captured:
        for config in configs.values():  # The first step of a size captures its graph, which takes long.
            _timed(engine, prompt, config, state)
    limit = limit.within(seconds)
    measured: dict[int, GenerationConfig] = {}
    for size, config in configs.items():  # an unmeasured round, which shows how many sizes there is time for
        if limit.stopped or (limit.left < seconds / 2 and len(measured) >= _FEWEST):
            break
        measured[size] = config
        steps[size] += [time for time in _timed(engine, prompt, config, state)[:1] if time > _LONG]
    for _ in range(1, _ROUNDS):
        for size, config in measured.items():
            if limit.stopped:
                return _points(steps)
            own = steps[size]
            if not limit.left and (len(own) >= _STEADY_STEPS or (own and own[0] > _LONG)):
                continue
            times = _timed(engine, prompt, config, state)
            own += times[:1] if times and times[0] > _LONG else times[1:]
    return _points(steps)


def timed_steps(engine: Engine, config: GenerationConfig) -> tuple[float, float] | None:
    """Milliseconds of a step of plain decoding and of one with the tree of this run, both timed alone here.

    None where nobody timed them, and for methods whose steps are more than their tree's.
    """
    if (tree := _own_tree(engine, config)) is None:
        return None
    latency = medusa_draft(engine).latency
    if not latency or latency[0].nodes != PLAIN or tree.size > latency[-1].nodes:
        return None
    plain, own = step_times(latency, [PLAIN, tree.size])
    return plain, own


def asks_for_auto_tree(config: GenerationConfig) -> bool:
    """Whether a run with these settings takes the tree that is fastest here."""
    return NAME in drafters_of(config.method) and config.options.get("tree", AUTO) == AUTO


def faster_tree(engine: Engine, config: GenerationConfig) -> int | None:
    """Nodes of the tree "auto" where it was chosen by step times and the run has another one."""
    tree, auto = _own_tree(engine, config), auto_tree(engine, config.changed(tree=AUTO))
    if tree is None or auto is None or not auto.timed:
        return None
    return auto.nodes if 1 < auto.nodes != tree.size else None


class AutoTree(NamedTuple):
    """The tree that "auto" stands for: its nodes, and whether step times chose it or could."""

    nodes: int
    timed: bool
    untimed: bool  # step times would choose one, and are not there


def auto_tree(engine: Engine, config: GenerationConfig) -> AutoTree | None:
    """The tree "auto" of a run; None for other trees."""
    if not asks_for_auto_tree(config) or NAME not in engine.drafts:
        return None
    draft = medusa_draft(engine)
    timed = draft.fastest is not None and draft.fastest.tokens_per_second is not None
    return AutoTree(draft.tree(AUTO).size, timed, lacks_step_times(engine))


def auto_tree_words(engine: Engine, config: GenerationConfig) -> str:
    """A sentence on which tree "auto" stands for in a run, and why; empty for other trees."""
    if (tree := auto_tree(engine, config)) is None:
        return ""
    if tree.timed:
        return f"tree auto: {tree.nodes} nodes, the fastest here by the times of its steps"
    busy = ": this machine is too busy to time its steps" if tree.untimed else ""
    return f"tree auto: {tree.nodes} nodes, as shipped with the heads{busy}"


def _own_tree(engine: Engine, config: GenerationConfig) -> Topology | None:
    """The tree of a run by Medusa's heads alone, where it is the same in every step."""
    return engine.fixed_tree(config) if config.method == NAME and NAME in engine.drafts else None


def _timed(engine: Engine, prompt: list[int], config: GenerationConfig, state: RunState) -> list[float]:
    """Milliseconds of the first steps of a run, up to one that is long, and of those with the whole tree."""
    times: list[float] = []
    tree: Topology | None = config.options.get("tree")
    with closing(engine.stream(prompt, config, state=state)) as run:
        for step in islice(run, _STEPS):
            if tree is None or step.tree.size == tree.size:  # near the end of the context it is shallower
                times.append(step.ms.total)
            if step.ms.total > _LONG:
                break
    return times


def _points(steps: dict[int, list[float]]) -> list[LatencyPoint]:
    points = []
    for size, times in sorted(steps.items()):
        if times:
            # Within the times: for few times the usual estimate goes beyond their ends, and below 0.
            few = len(times) == 1
            low, _, high = times * 3 if few else statistics.quantiles(times, n=4, method="inclusive")
            points.append(LatencyPoint(nodes=size, step_ms=low, step_ms_range=(low, high), steps=len(times)))
    return points


def _is_steady(points: Sequence[LatencyPoint]) -> bool:
    """Whether there was time for all sizes, and the middle half of most lies close together."""
    enough = all((point.steps or 0) >= _STEADY_STEPS or point.step_ms > _LONG for point in points)
    return len(points) >= _FEWEST and enough and unsteady(points) is None


def _draft(engine: Engine) -> MedusaDraft | None:
    """The heads whose tree can be chosen by measurement."""
    draft = medusa_draft(engine) if NAME in engine.drafts else None
    return draft if draft is not None and draft.accuracies is not None else None


def _key(engine: Engine) -> dict[str, Any]:
    """What the times are valid for: this machine, this model in this dtype on this forward, these heads."""
    info = engine.info
    return machine_key(engine.target.output_device) | {
        "engine": ENGINE_VERSION,
        "threads": engine.target.threads_used,
        "model": [info.base, info.heads, info.parameters, info.draft_parameters],
        "computed": [info.dtype, info.device, info.forward],
    }
