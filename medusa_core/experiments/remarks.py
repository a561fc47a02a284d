"""What a reader must know about a record: first why it contradicts the paper, if it does, then the rest.

The texts lie beside the store. Whether an experiment contradicts the paper is read from its rows, so it
holds for every machine; other remarks belong to the record of one date.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from medusa_core.errors import MedusaError
from medusa_core.experiments import store
from medusa_core.experiments.figure7 import FORMULA
from medusa_core.experiments.record import ExperimentRecord, Row
from medusa_core.experiments.settings import PLAIN
from medusa_core.experiments.spec_bench import ALL
from medusa_core.experiments.store import MEASURED
from medusa_core.files import damaged_asset, read_asset

FILE = "remarks.json"
EMBEDDED = "embedded"


def reason_against_paper(record: ExperimentRecord, folder: Path = MEASURED) -> str:
    """Why the order of the record's rows is not the paper's; empty where it is the paper's."""
    is_against = _AGAINST.get(record.name)
    if is_against is None or not is_against(record.rows):
        return ""
    values = _VALUES.get(record.name, lambda rows: ())(record.rows)
    return str(_remarks(record.name, folder).get("against_the_paper", "")).format(*values)


def further_remarks(record: ExperimentRecord, folder: Path = MEASURED) -> list[str]:
    """Remarks on the record of this date, and on whether its weights are still the shipped ones."""
    found = _remarks(record.name, folder)
    texts = list(found.get("remarks", ())) if found.get("date") == record.date else []
    if has_older_weights(record):
        texts.append(_remarks(EMBEDDED, MEASURED)["remark"])
    return texts


def has_older_weights(record: ExperimentRecord) -> bool:
    """Whether the embedded model was measured with weights that have been replaced since."""
    return not record.simulated and record.model.weights != shipped_weights(record.model.base)


def shipped_weights(base: str) -> str:
    """The name that records give to the embedded model's present weights; empty for another base."""
    return str(_remarks(EMBEDDED, MEASURED).get("weights", "")) if base == EMBEDDED else ""


def current_record(name: str, kind: str, folder: Path = MEASURED) -> ExperimentRecord | None:
    """A kept record of this engine and the shipped weights, or of formulas: it need not be made again."""
    try:
        found = store.record(name, kind, folder)
    except MedusaError:
        return None
    return None if found is None or found.is_outdated or has_older_weights(found) else found


def _remarks(name: str, folder: Path) -> Mapping[str, Any]:
    file = folder / FILE
    found = read_asset(file).get(name, {}) if folder == MEASURED or file.is_file() else {}
    if not isinstance(found, dict):
        raise damaged_asset(file, f"{name} is not an object")
    return found


def _eagle3_is_not_the_fastest(rows: Sequence[Row]) -> bool:
    """Whether EAGLE-3 is not the fastest at some temperature, whichever of its trees is taken."""
    for label in {row.label for row in rows}:
        rates = {row.series: row.tokens_per_second.median for row in rows if row.label == label}
        own = [rate for name, rate in rates.items() if name.startswith("eagle3")]
        others = [rate for name, rate in rates.items() if not name.startswith("eagle3")]
        if own and others and max(others) > max(own):
            return True
    return False


def _keeping_more_is_slower(rows: Sequence[Row]) -> bool:
    """Whether one of those that Spec-Bench ranks before Medusa keeps more tokens here, and is slower."""
    of_all = {row.series: row for row in rows if row.label == ALL}
    medusa = of_all.get("medusa")
    ranked_before = [of_all[name] for name in ("hydra", "eagle3") if name in of_all]
    return medusa is not None and any(
        row.tokens_per_step.mean > medusa.tokens_per_step.mean
        and row.tokens_per_second.median < medusa.tokens_per_second.median
        for row in ranked_before
    )


def _a_kind_loses(rows: Sequence[Row]) -> bool:
    """Whether Medusa is slower than plain decoding on some kind of text."""
    return any(row.speedup.median < 1 for row in rows if row.series != PLAIN and row.speedup)


def _own_step(rows: Sequence[Row]) -> tuple[str, ...]:
    """The nodes of Medusa's tree, and the time of its step over a plain one, over all kinds of text."""
    own = [row for row in rows if row.series != PLAIN][-1]  # the last row is that of all kinds
    return str(own.tree_nodes), f"{own.overhead or math.nan:.2f}"


def _drafted(rows: Sequence[Row]) -> list[Row]:
    """The measured rows of draft models, without those that the formula gives."""
    return [row for row in rows if row.series != PLAIN and not row.series.endswith(FORMULA)]


def _no_draft_model_gains(rows: Sequence[Row]) -> bool:
    """Whether plain decoding is the fastest, whatever γ is."""
    gains = [row.speedup.median for row in _drafted(rows) if row.speedup]
    return bool(gains) and max(gains) < 1


def _drafting_time(rows: Sequence[Row]) -> tuple[str, ...]:
    """The time in which the fastest draft model drafts one token, with γ = 1, over that of a plain step."""
    plain = next(row for row in rows if row.series == PLAIN)
    times = [row.phase_ms.get("propose", 0.0) for row in _drafted(rows) if row.x == 1]
    return (f"{min(times) / plain.step_ms:.2f}",)


def _length_costs_speed(rows: Sequence[Row]) -> bool:
    """Whether the longest text gains less than the shortest one, or nothing."""
    drafted = [row for row in rows if row.series != PLAIN and "," not in row.series and row.speedup]
    gains = [row.speedup.median for row in sorted(drafted, key=lambda row: row.x or 0.0) if row.speedup]
    return bool(gains) and (gains[-1] < gains[0] or gains[-1] < 1)


def _second_stage_is_slower(rows: Sequence[Row]) -> bool:
    """Whether Medusa-2 is slower than Medusa-1."""
    gains = {row.label.partition(",")[0]: row.speedup.median for row in rows if row.speedup}
    return gains.get("Medusa-2", math.inf) < gains.get("Medusa-1", 0.0)


def _threshold_changes_nothing(rows: Sequence[Row]) -> bool:
    """Whether the lowest ε keeps no more tokens than the highest with a greedy root, within the errors."""
    swept = sorted(
        (row for row in rows if row.series == "typical, greedy root"), key=lambda row: row.x or 0.0
    )
    if len(swept) < 2:
        return False
    low, high = swept[0].tokens_per_step, swept[-1].tokens_per_step
    return low.mean - high.mean <= math.hypot(low.standard_error or 0.0, high.standard_error or 0.0)


_AGAINST: dict[str, Callable[[Sequence[Row]], bool]] = {
    "eagle3-table1": _eagle3_is_not_the_fastest,
    "figure3": _a_kind_loses,
    "figure5": _threshold_changes_nothing,
    "figure7": _no_draft_model_gains,
    "spec-bench": _keeping_more_is_slower,
    "table2": _second_stage_is_slower,
    "tokenswift": _length_costs_speed,
}
_VALUES: dict[str, Callable[[Sequence[Row]], tuple[str, ...]]] = {  # values in a reason
    "figure3": _own_step,
    "figure7": _drafting_time,
}
