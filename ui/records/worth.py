"""What a recorded run was worth, by the stored times of steps that all tabs state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.errors import MedusaError
from medusa_core.experiments import store
from medusa_core.experiments.spec_bench import of_all_kinds, step_times
from medusa_core.trees.budget import PLAIN, parse_latency
from medusa_core.trees.budget import step_times as times_of


def recorded_worth(trace: dict[str, Any], assets: Path) -> dict[str, Any] | None:
    """Milliseconds of a plain step and of one of this run, and their machine; None where none are stored.

    A tree of Medusa's takes the stored time of its number of nodes, a step of another drafter that of the
    settings its weights bring.
    """
    try:
        record = store.record(store.HEADLINE, folder=assets / store.FOLDER)
    except MedusaError:
        return None
    if record is None:
        return None
    name = trace["config"]["drafter"]["name"]
    latency = parse_latency({"latency": step_times(record.rows)})
    steps = {row.series: row.step_ms for row in of_all_kinds(record.rows)}
    if name == MEDUSA and latency:
        nodes = max(len(step["nodes"]) for step in trace["steps"])
        timed = times_of(latency, [PLAIN, nodes])
    elif name in steps and name != MEDUSA:
        timed = [steps["none"], steps[name]]
    else:
        return None
    return {"timed_ms": timed, "machine": store.title_of(record.machine)}
