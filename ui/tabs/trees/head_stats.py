"""What the Trees tab knows: accuracies, step times, the tree of a size, and files.

A `HeadStats` is one visitor's record; every function makes a new one. Files that a visitor loads are limited
in size and read only as data.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa_core.checkpoints.locate import beside_heads, embedded_model
from medusa_core.checkpoints.names import ACCURACIES_NAME
from medusa_core.checkpoints.sources import heads_folder
from medusa_core.config import NO_HEADS, LoadConfig
from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError, counted
from medusa_core.experiments.spec_bench import step_times
from medusa_core.trees.baselines import best_cartesian_trees, random_choices
from medusa_core.trees.budget import Budget, LatencyPoint, best_budget, budgets, parse_latency
from medusa_core.trees.search import (
    assumed_accuracies,
    check_accuracies,
    expected_lengths,
    parse_accuracies,
    search_tree,
)
from medusa_core.trees.tree import TOP_K, Choice, Topology
from ui.figures.tree_charts import Growth
from ui.records.figures import Figures, Key, key_of
from ui.records.settings import MOST_NODES, Selection
from ui.records.words import sentences
from ui.runs.session import Session

if TYPE_CHECKING:
    from medusa_core.engine import Engine

MOST_BYTES = 200_000  # size limit of a file that a visitor loads
MOST_HEADS = 16
USUAL_HEADS = 5  # where no file says more; the paper's number
RANDOM_TREES = 20
GROWN, LOADED, EDITED = "Grown tree", "Loaded tree", "Edited tree"
ASSUMED = "assumed: nobody has counted them for these heads"
WITHOUT_HEADS = f"assumed, from {USUAL_HEADS} typical heads: this model has none"
REMARKS = {
    ASSUMED: "Nobody has counted how often these heads are right, so this is a guess: measure to know.",
    WITHOUT_HEADS: f"This model has no Medusa heads: these are the figures of {USUAL_HEADS} typical ones.",
}
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HeadStats:
    """Accuracies with their source, the step times of a machine, and a tree if it is not a grown one."""

    accuracies: tuple[tuple[float, ...], ...]
    source: str
    latency: tuple[LatencyPoint, ...] = ()
    machine: str = ""
    figures: Figures | None = None  # if the step times are those that all tabs show
    shown: tuple[Choice, ...] | None = None  # in place of a grown tree until the slider moves
    kind: str = GROWN
    # Which tree the page's editor began with: it keeps what was edited until another tree comes.
    tree_id: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False)
    key: Key = ("", None)  # the model and the heads that the record is about

    def belongs_to(self, selection: Selection) -> bool:
        """Whether the record is about the heads that the visitor has chosen."""
        return self.key == key_of(selection)

    def grown(self) -> HeadStats:
        return self.showing(None, GROWN)

    def showing(self, choices: Sequence[Choice] | None, kind: str) -> HeadStats:
        """The same record with another tree to begin with; None for the grown one."""
        shown = None if choices is None else tuple(choices)
        return replace(self, shown=shown, kind=kind, tree_id=uuid.uuid4().hex)


# ---- where a record comes from ---------------------------------------------------------------------------


def stats_of(session: Session, selection: Selection) -> HeadStats:
    """What is known of the heads that the visitor has chosen. Raises MedusaError when theirs are gone."""
    if not selection.engine:
        return shipped_stats(session, selection)
    from medusa_core.evaluation.measure_heads import measured_on  # noqa: PLC0415 - transformers takes seconds

    engine = session.own_engine(selection)
    stats = _engine_stats(engine, f"counted for your heads “{selection.label}”", selection)
    if latency := medusa_draft(engine).latency:  # by Train, on this machine
        stats = replace(stats, latency=latency, machine=machine_line(measured_on(engine)))
    return stats


def shipped_stats(session: Session, selection: Selection) -> HeadStats:
    """The record stored with the visitor's heads, or what the model knows if it is loaded already."""
    assumed = HeadStats(frozen(assumed_accuracies(USUAL_HEADS)), ASSUMED, key=key_of(selection))
    if (engine := session.models.at_hand(selection)) is not None:
        assumed = _engine_stats(engine, "shipped with the heads", selection)
        if MEDUSA not in engine.drafts:
            return assumed
    try:
        file = accuracies_file(session.models.config_of(selection))
        if file is None:
            return assumed
        stats = read_stats(file.read_text(encoding="utf-8"), assumed, "shipped with the heads")
        if not file.is_relative_to(session.assets / "model"):
            return stats
        return with_times(stats, session.figures.begin().stored)
    except (MedusaError, OSError, UnicodeDecodeError) as error:
        log.warning("the accuracies stored with the heads cannot be used: %s", error)
        return assumed


def accuracies_file(load: LoadConfig) -> Path | None:
    """The accuracies stored with a model's heads, if both are on this disk."""
    if load.heads == NO_HEADS:
        return None
    folder = Path(load.model) if load.model else embedded_model()
    heads = Path(load.heads) if load.heads else heads_folder(folder)
    return beside_heads(heads, ACCURACIES_NAME) if heads else None


def with_times(stats: HeadStats, figures: Figures | None) -> HeadStats:
    """The step times of the stored record in place of the file's own."""
    times = step_times(figures.record.rows) if figures else []
    if figures is None or not times:
        return stats
    machine = figures.record.machine.model_dump() | {"dtype": figures.record.model.dtype}
    latency = tuple(parse_latency({"latency": times}))
    return replace(stats, latency=latency, machine=machine_line(machine), figures=figures)


def _engine_stats(engine: Engine, source: str, selection: Selection) -> HeadStats:
    """What an engine knows of its heads; `source` names the origin if it knows their accuracies."""
    if MEDUSA not in engine.drafts:
        return HeadStats(frozen(assumed_accuracies(USUAL_HEADS)), WITHOUT_HEADS, key=key_of(selection))
    draft = medusa_draft(engine)
    rows = frozen(draft.accuracies or assumed_accuracies(draft.heads.count))
    return HeadStats(rows, source if draft.accuracies else ASSUMED, key=key_of(selection))


def read_stats(text: str, stats: HeadStats, source: str) -> HeadStats:
    """A file's tree or accuracies in place of those of `stats`. Raises MedusaError that names the fault.

    A tree is a list of rank tuples or an object with "choices"; accuracies are a list of rows or the object
    that `calibrate` writes, whose latency and machine are used as well.
    """
    if len(text.encode("utf-8", errors="replace")) > MOST_BYTES:
        raise MedusaError(f"the file is larger than {MOST_BYTES // 1000} kB: load a tree or accuracies")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MedusaError(f"the file is not JSON ({error}): load one that was saved here") from error
    if _is_tree(data):
        choices = data["choices"] if isinstance(data, dict) else data
        tree = tree_for(stats, choices)
        if not tree.choices:
            raise MedusaError("the tree has no nodes: load one with at least one guess")
        return stats.showing(tree.choices, LOADED)
    try:
        rows = parse_accuracies(data)
    except MedusaError as error:
        words = "the file holds neither a tree nor accuracies of heads: load one that was saved here"
        raise MedusaError(words) from error
    check_accuracies(rows)
    if len(rows) > MOST_HEADS:
        raise MedusaError(f"the file has {len(rows)} heads, the page shows {MOST_HEADS}: load fewer")
    record = data if isinstance(data, dict) else {}
    if type(positions := record.get("positions")) is int:
        source += f", counted over {counted(positions, 'position')}"
    return replace(
        stats.grown(), accuracies=frozen(row[:TOP_K] for row in rows), source=source,
        latency=tuple(parse_latency(record)), machine=machine_line(record.get("machine")), figures=None,
    )  # fmt: skip


def tree_for(stats: HeadStats, choices: object) -> Topology:
    """The tree in parsed JSON. Raises MedusaError unless it is one that these heads can fill."""
    if not isinstance(choices, list):
        raise MedusaError("the tree is not a list of rank tuples: write them as in [[0], [0, 0], [1]]")
    tree = Topology.from_choices(choices)
    tree.check(len(stats.accuracies))
    for choice in tree.choices:
        head, known = len(choice), len(stats.accuracies[len(choice) - 1])
        if choice[-1] >= known:
            raise MedusaError(
                f"tree node {list(choice)} uses rank {choice[-1]}, head {head} offers ranks 0 to "
                f"{known - 1}: use a narrower tree"
            )
    return tree


def tree_text(stats: HeadStats, choices: Sequence[Choice]) -> str:
    """A tree as the JSON that `--tree` and this page read."""
    length = expected_lengths(stats.accuracies, choices)[-1]
    return json.dumps({"choices": [list(choice) for choice in choices], "expected_length": round(length, 4)})


def measurements_text(stats: HeadStats) -> str:
    """Accuracies and step times as the JSON that `tree search` and this page read."""
    record: dict[str, Any] = {"accuracies": stats.accuracies}
    if stats.latency:
        record["latency"] = [point.model_dump(exclude_none=True) for point in stats.latency]
        record["machine"] = stats.machine
    return json.dumps(record, ensure_ascii=False)


# ---- what the page shows ---------------------------------------------------------------------------------


def tree_of(stats: HeadStats, nodes: int) -> list[Choice]:
    """The tree that is shown: the best one with `nodes` nodes, unless another one was chosen or made."""
    if stats.shown is not None:
        return list(stats.shown)
    return search_tree(stats.accuracies, max(1, nodes - 1)).choices


def growth(stats: HeadStats) -> Growth:
    """Expected tokens by size of the three kinds of tree."""
    best = search_tree(stats.accuracies, MOST_NODES - 1).choices
    grown = [random_choices(stats.accuracies, MOST_NODES, seed) for seed in range(RANDOM_TREES)]
    return Growth(
        optimised=expected_lengths(stats.accuracies, best),
        cartesian=best_cartesian_trees(stats.accuracies, MOST_NODES),
        random=[expected_lengths(stats.accuracies, choices) for choices in grown],
    )


def timed(stats: HeadStats) -> list[LatencyPoint]:
    """The measured sizes that the charts have room for."""
    return [point for point in stats.latency if point.nodes <= MOST_NODES]


def speeds(stats: HeadStats) -> list[Budget]:
    """What is expected of every size; empty before a tree was measured."""
    points = timed(stats)
    return budgets(stats.accuracies, points) if points and points[-1].nodes > 1 else []


def best_size(stats: HeadStats) -> Budget | None:
    """The tree size with the most expected tokens per second, where step times are known."""
    found = speeds(stats)
    return best_budget(found) if found else None


def sentence(stats: HeadStats, nodes: int) -> str:
    """What the tree on screen promises, and the best size; the editor tells this tree's own speed."""
    choices = tree_of(stats, nodes)
    size = counted(len(choices) + 1, "node")
    length = expected_lengths(stats.accuracies, choices)[-1]
    words = [f"{stats.kind}: {size} with the root, {length:.2f} tokens per step expected."]
    if best := best_size(stats):
        words.append(
            f"The best size on the machine that was timed is {counted(best.nodes, 'node')} with "
            f"{best.tokens_per_second:,.0f} tokens/s."
        )
        words += [
            f"Plain decoding gives {one.tokens_per_second:,.0f}." for one in speeds(stats) if one.nodes == 1
        ]
        words.append(
            "This counts the time inside steps; Measure counts whole runs, so its figures are mostly lower "
            "and its best size can differ."
        )
    if stats.source in REMARKS:
        words.append(REMARKS[stats.source])
    return sentences(*words)


# ---- details ---------------------------------------------------------------------------------------------


def _is_tree(data: object) -> bool:
    """Whether parsed JSON is a tree: a list of lists of whole numbers, or an object with choices."""
    if isinstance(data, dict):
        return "choices" in data
    rows = data if isinstance(data, list) else []
    return bool(rows) and all(isinstance(row, list) and all(type(v) is int for v in row) for row in rows)


def frozen(rows: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in rows)


def machine_line(record: object) -> str:
    """One short line from what a file says about its machine."""
    if isinstance(record, dict):
        names = ("processor", "device", "dtype")
        parts = [str(record[name]) for name in names if record.get(name)]
        if record.get("threads"):
            parts.append(counted(record["threads"], "thread"))
        record = ", ".join(parts)
    return record[:120] if isinstance(record, str) else ""
