"""Measures figure 7; what it is and its settings are in the package."""

from __future__ import annotations

from dataclasses import replace

from medusa_core.config import pick_settings, whole_numbers
from medusa_core.drafters import draft_model
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.experiments.figure7 import FORMULA, Settings
from medusa_core.experiments.record import Row
from medusa_core.experiments.rows import computed_row
from medusa_core.experiments.setup import Case, Findings, Setup
from medusa_core.experiments.variants import read_folders
from medusa_core.loading.load import load_engine


def measure(setup: Setup, settings: Settings) -> Findings:
    """Plain decoding and every draft model with every γ, interleaved. Raises MedusaError."""
    gammas = sorted({1, *whole_numbers(settings.gammas, "gammas")})
    for gamma in gammas:
        pick_settings(draft_model.Settings, {"draft_depth": gamma})
    engines = drafting_engines(setup, settings.draft_models)
    cases = [Case.plain(setup.engine)]
    for name, engine in engines.items():
        for gamma in gammas:
            chain = {"draft_top_k": 1, "draft_depth": gamma, "draft_nodes": gamma}
            changes = {"method": draft_model.NAME, **chain}
            cases.append(Case(_label(name, gamma), engine, changes, gamma + 1, name, gamma))
    (plain, *found), _ = setup.compare(cases)
    rows, notes = [plain], []
    for name in engines:
        measured = [row for row in found if row.series == name]
        share = min(1.0, max(0.0, measured[0].tokens_per_step.mean - 1))
        cost = measured[0].phase_ms["propose"] / plain.step_ms
        rows += [*measured, *(by_formula(name, gamma, share, cost, plain) for gamma in gammas)]
        notes.append(
            f"Draft model {name}: α is {share:.2f}, and drafting a token takes {cost:.2f} of a plain step."
        )
    notes.append("The formula takes a step that checks γ + 1 tokens to last as long as a plain one.")
    return Findings(rows, notes)


def drafting_engines(setup: Setup, names: str) -> dict[str, Engine]:
    """An engine for each draft model by what it is called. Raises MedusaError where there is none."""
    given = [part.partition("=")[0].strip() for part in names.split(",")]
    folders = read_folders(names, given, "draft-models")
    if folders:
        return {name: load_engine(replace(setup.load, heads=str(folder))) for name, folder in folders.items()}
    draft = setup.engine.drafts.get(draft_model.NAME)
    if draft is None:
        raise MedusaError("no draft model is loaded: name some with --draft-models, as in small=FOLDER")
    millions = sum(tensor.numel() for tensor in draft.tensors()) / 1e6
    return {f"{millions:.1f} M": setup.engine}


def kept_tokens(share: float, gamma: int) -> float:
    """(1 − α^(γ+1)) / (1 − α): tokens a step keeps where each drafted one is right with probability α."""
    return sum(share**count for count in range(gamma + 1))


def by_formula(name: str, gamma: int, share: float, cost: float, plain: Row) -> Row:
    """The row of a γ that the formula gives; no model ran for it."""
    kept, overhead = kept_tokens(share, gamma), gamma * cost + 1
    return computed_row(
        series=f"{name}{FORMULA}",
        label=_label(f"{name}{FORMULA}", gamma),
        x=gamma,
        nodes=gamma + 1,
        kept=kept,
        rate=plain.tokens_per_second.median * kept / overhead,
        step_ms=plain.step_ms * overhead,
        overhead=overhead,
    )


def _label(name: str, gamma: int) -> str:
    return f"γ = {gamma}, {name}"
