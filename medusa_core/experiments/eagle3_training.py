"""EAGLE-3's training: text, training-time test, features (arXiv 2503.01840, figures 1 and 7, table 2).

Every row is a draft layer that this command trains on the same text, all from one seed and all drafting trees
of one size. What is right by step is counted on the plain texts of the prompts, where the layer reads the
base's features in the first step and its own output in all later ones, as it does while it drafts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa_core.config import setting
from medusa_core.errors import MedusaError
from medusa_core.experiments.settings import PLAIN

if TYPE_CHECKING:
    from medusa_core.engine import Engine
    from medusa_core.experiments.record import Row
    from medusa_core.experiments.setup import Findings, Setup

TITLE = "EAGLE-3's training"
TRAINS = True
METHOD, WHOLE = "eagle3", "EAGLE-3"
STEPS = 7
TREE: dict[str, Any] = {"draft_top_k": 4, "draft_depth": STEPS, "draft_nodes": 15}


@dataclass(frozen=True)
class Settings:
    """How much is trained, and on which text."""

    layers: str = setting("", "trained folders, as in whole=FOLDER,hass=FOLDER; others are trained")
    tokens: int = setting(1_572_864, "training tokens of the whole; its parts: 1/8, 1/4 and 1/2", low=8)
    batch_tokens: int = setting(4096, "training tokens a step", low=8)
    data: str = setting("", "text to train on, .jsonl or .txt; default: text the model itself writes")
    runs: str = setting("runs/eagle3-training", "folder for the training runs")
    compile: bool = setting(False, "compile the draft layer: minutes first, then each step is shorter")


DEFAULTS: dict[str, object] = {"limit": 4, "max_new_tokens": 96, "rounds": 2}
QUICK: dict[str, object] = {"tokens": 8192, "batch_tokens": 1024}


@dataclass(frozen=True)
class Variant:
    """A layer with its training's own settings; ``part`` is the share of tokens that are read."""

    label: str
    changes: dict[str, Any]
    part: float = 1.0


def variants_of(layers: int) -> dict[str, Variant]:
    """The rows of the experiment for a base of so many layers."""
    last = {"feature_layers": ",".join([str(layers)] * 3)}
    goal = {"feature_weight": 1.0}
    return {
        "eighth": Variant("EAGLE-3 on 1/8 of the text", {}, 1 / 8),
        "quarter": Variant("EAGLE-3 on 1/4 of the text", {}, 1 / 4),
        "half": Variant("EAGLE-3 on 1/2 of the text", {}, 1 / 2),
        "whole": Variant(WHOLE, {}),
        "last": Variant("features of the last layer alone", last),
        "goal": Variant("features as a goal", goal),
        "untested": Variant("no training-time test", {"unrolled_steps": 1}),
        "hass": Variant("last layer and goal with 3 steps (HASS)", last | goal | {"unrolled_steps": 3}),
        "eagle1": Variant("last layer and goal with 1 step (EAGLE)", last | goal | {"unrolled_steps": 1}),
    }


def measure(setup: Setup, settings: Settings) -> Findings:
    """All layers on all prompts, interleaved, and what each guesses by step. Raises MedusaError."""
    from medusa_core.experiments.setup import Case, Findings

    variants = variants_of(setup.engine.target.config.num_hidden_layers)
    engines = load_layers(setup, settings, variants)
    cases = [Case.plain(setup.engine)]
    for name, variant in variants.items():
        tokens = None if variant.changes else round(settings.tokens * variant.part)
        changes = {"method": METHOD, **TREE}
        cases.append(Case(variant.label, engines[name], changes, TREE["draft_nodes"] + 1, x=tokens))
    rows, logs = setup.compare(cases)
    written = logs[PLAIN].rounds[0]
    texts = [[*prompt, *run.tokens] for prompt, run in zip(setup.all_prompts, written, strict=True)]
    for row, case in zip(rows[1:], cases[1:], strict=True):
        row.right_by_step = right_by_step(case.engine, texts)
    return Findings(rows, [_kept(rows[1:])])


def load_layers(setup: Setup, settings: Settings, variants: dict[str, Variant]) -> dict[str, Engine]:
    """An engine for each layer; those without a folder are trained. Raises MedusaError."""
    from medusa_core.experiments.train_variants import finished_folder, write_text
    from medusa_core.experiments.variants import read_folders
    from medusa_core.loading.load import load_engine
    from medusa_core.training.config import Eagle3Config

    folders = read_folders(settings.layers, list(variants), "layers")
    if missing := [name for name in variants if name not in folders]:
        own = setup.data_root / settings.data if settings.data else None
        data = str(own or write_text(setup, settings.runs, settings.tokens))
        for name in missing:
            tokens = max(settings.batch_tokens, round(settings.tokens * variants[name].part))
            config = Eagle3Config(
                model=setup.load.model,
                data=data,
                out=str(Path(settings.runs) / name),
                tokens=tokens,
                batch_tokens=settings.batch_tokens,
                heldout_windows=4,  # its own scores are not what is compared
                warmup_steps=max(1, tokens // settings.batch_tokens // 10),
                optimizer="muon",
                learning_rate=1e-3,
                compile=settings.compile,
                **variants[name].changes,
            )
            folders[name] = finished_folder(setup, config)
    engines = {name: load_engine(replace(setup.load, heads=str(folder))) for name, folder in folders.items()}
    for name, engine in engines.items():
        if METHOD not in engine.drafts:
            raise MedusaError(f"{folders[name]} holds no EAGLE-3 layer: name the folder of a trained one")
    return engines


def right_by_step(engine: Engine, texts: list[list[int]]) -> list[float]:
    """How often the layer's first guess in each step is the base's own next token, over all of the texts."""
    import torch

    from medusa_core.drafters.eagle3.draft import Eagle3Draft
    from medusa_core.training.unrolled_losses import Reading, UnrolledLosses

    draft, model = engine.drafts[METHOD], engine.target.model
    assert isinstance(draft, Eagle3Draft)
    layers = draft.model.shape.layers or draft.layers
    losses = UnrolledLosses(draft.model, STEPS, model.device)
    right, of = torch.zeros(STEPS), torch.zeros(STEPS)
    with torch.inference_mode():
        for text in texts:
            tokens = torch.tensor([text], device=model.device)
            found = losses.scores(Reading(model, tokens, layers), torch.ones_like(tokens, dtype=torch.bool))
            rows = found.count.cpu()
            right[: len(rows)] += found.top1.cpu() * rows
            of[: len(rows)] += rows
    return [round(share, 4) for share in (right / of.clamp(min=1)).tolist()]


def _kept(rows: list[Row]) -> str:
    """Tokens per step of each change over those of the whole recipe."""
    whole = next(row for row in rows if row.label == WHOLE).tokens_per_step.mean
    found = [f"{row.label} {row.tokens_per_step.mean / whole:.2f}" for row in rows]
    return f"Tokens per step over {WHOLE}'s: {', '.join(found)}."
