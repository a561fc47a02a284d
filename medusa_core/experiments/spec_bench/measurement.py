"""Measures all methods and a step by its nodes; what is compared and its settings are in the package."""

from __future__ import annotations

from medusa_core.config import whole_numbers
from medusa_core.drafters import method
from medusa_core.drafters.medusa import NAME, medusa_draft, with_heads
from medusa_core.errors import counted
from medusa_core.evaluation.bench import BASELINE, TRANSFORMERS, make_runners
from medusa_core.evaluation.step_times import auto_tree_words, measure_step_times
from medusa_core.evaluation.turns import MethodLog
from medusa_core.experiments.record import Row
from medusa_core.experiments.rows import make_row
from medusa_core.experiments.setup import Findings, Setup
from medusa_core.experiments.spec_bench import ALL, NAMES, STEP, Settings
from medusa_core.trees.budget import PLAIN
from medusa_core.trees.tree import MAX_NODES

SECONDS = 6.0  # for the step times that choose Medusa's tree


def measure(setup: Setup, settings: Settings) -> Findings:
    """Greedy runs in turns; rows by kind and method, then steps by nodes. Raises MedusaError."""
    engine, trees = setup.engine, {}
    if NAME in engine.drafts:
        if medusa_draft(engine).accuracies is not None:  # the tree "auto" is to be this machine's
            engine = with_heads(engine, latency=tuple(measure_step_times(engine, SECONDS)))
        sizes = sorted({*whole_numbers(settings.nodes, "nodes", 2, MAX_NODES)})
        trees = {size: medusa_draft(engine).budget_tree(size - 1) for size in sizes}
        trees = {size: tree for size, tree in trees.items() if tree.size == size}  # there are guesses enough
    config, prompts = setup.config(), setup.all_prompts
    names = list(dict.fromkeys([BASELINE, *engine.methods(), *NAMES]))
    if NAME not in engine.drafts:
        names.remove(NAME)
    runners, left_out = make_runners(engine, prompts, names, config)
    names = list(runners)
    logs = setup.interleave(
        runners | {f"{NAME} {size}": setup.runner(engine, tree=tree) for size, tree in trees.items()}
    )
    kinds = setup.places() | {ALL: range(len(prompts))}
    rows = [_row(name, logs, places, kind) for kind, places in kinds.items() for name in names]
    steps = {PLAIN: logs[BASELINE]} | {size: logs[f"{NAME} {size}"] for size in trees}
    rows += [
        make_row(log, logs[BASELINE], series=STEP, label=counted(size, "node"), x=size, tree_nodes=size)
        for size, log in steps.items()
    ]
    notes = [_fastest(rows, list(kinds)), _identical({name: logs[name] for name in names})]
    if NAME in names:
        notes.append(f"Medusa's {auto_tree_words(engine, setup.config(method=NAME))}.")
    notes += [f"{name} was left out: {reason}." for name, reason in left_out.items()]
    return Findings(rows, notes)


def _row(name: str, logs: dict[str, MethodLog], places: range, kind: str) -> Row:
    log, generate = logs[name].only(places), logs.get(TRANSFORMERS)
    nodes = log.nodes if log.has_phases else None
    beside = None if generate is None else generate.only(places)
    base = logs[BASELINE].only(places)
    return make_row(log, base, series=name, label=kind, tree_nodes=nodes, generate=beside)


def _fastest(rows: list[Row], kinds: list[str]) -> str:
    """The method with most tokens per second of each kind, in a sentence."""
    found = []
    for kind in kinds:
        of_kind = (row for row in rows if row.label == kind)
        best = max(of_kind, key=lambda row: row.tokens_per_second.median)
        found.append(f"{kind}: {best.series}")
    return f"Fastest by kind of text: {', '.join(found)}."


def _identical(logs: dict[str, MethodLog]) -> str:
    """A sentence on how many texts of each drafter equal plain decoding's."""
    plain = logs[BASELINE]
    same = [
        f"{name} {log.same_texts(plain)}"
        for name, log in logs.items()
        if log.has_phases and method(name).mark  # it drafts something
    ]
    return f"Texts identical to plain decoding's, of {len(plain.rounds[0])}: {', '.join(same)}."
