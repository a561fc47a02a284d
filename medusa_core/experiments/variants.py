"""Trained variants of one base for the paper's tables: loaded from folders, or trained first.

A variant is a folder of heads (with the adapter of a fine-tuned base beside them) or a whole model with its
heads. Each gets the tree that its own heads' accuracies ask for, all calibrated on the same prompts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.drafters.medusa import medusa_draft, with_heads
from medusa_core.engine import Engine, EngineInfo
from medusa_core.errors import MedusaError
from medusa_core.evaluation.head_accuracy import count_heads
from medusa_core.evaluation.prompts import read_prompts, shipped_prompts
from medusa_core.experiments.settings import VariantSettings
from medusa_core.experiments.setup import Case, Setup
from medusa_core.experiments.train_variants import train_missing
from medusa_core.loading.load import load_engine
from medusa_core.trees.search import expected_lengths
from medusa_core.trees.tree import Topology

CALIBRATION_TOKENS = 128  # written after each calibration prompt


def load_variants(setup: Setup, settings: VariantSettings, names: list[str]) -> dict[str, Engine]:
    """The variants by name, calibrated. Raises MedusaError for a folder that is none."""
    folders = read_folders(settings.variants, names)
    if missing := [name for name in names if name not in folders]:
        folders |= train_missing(setup, settings, missing)
    engines = {name: load_variant(setup, folders[name]) for name in names}
    prompts = calibration_prompts(setup, settings)
    return {name: calibrated(engine, prompts) for name, engine in engines.items()}


def read_folders(text: str, names: list[str], flag: str = "variants") -> dict[str, Path]:
    """Folders by name from "medusa1=FOLDER,…". Raises MedusaError for unknown names and missing folders."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, folder = part.partition("=")
        if name not in names or not folder:
            raise MedusaError(f"--{flag} has {part!r}: write NAME=FOLDER with NAME one of {', '.join(names)}")
        if not Path(folder).is_dir():
            raise MedusaError(f"there is no folder {folder} for {name} of --{flag}: check the path")
        found[name] = Path(folder)
    return found


def load_variant(setup: Setup, folder: Path) -> Engine:
    """The engine of a folder of heads on the setup's base, or of a whole model with its heads."""
    whole = any(folder.glob("model*.safetensors"))  # merged: a model with its heads in a folder below
    changes: dict[str, Any] = {"model": str(folder), "heads": ""} if whole else {"heads": str(folder)}
    engine = load_engine(replace(setup.load, **changes))
    if MEDUSA not in engine.drafts:
        raise MedusaError(
            f"{folder} holds a model without Medusa heads: name the folder of a trained variant"
        )
    return engine


def calibrated(engine: Engine, prompts: list[list[int]]) -> Engine:
    """The engine with accuracies of its heads on its own greedy text after ``prompts``."""
    *_, counted = count_heads(engine, prompts, CALIBRATION_TOKENS)
    return with_heads(engine, accuracies=counted.shares)


def tree_case(label: str, engine: Engine, tree: Topology) -> Case:
    """A run of a calibrated variant with a tree, and what its accuracies promise of that tree."""
    expected = expected_lengths(medusa_draft(engine).require_accuracies(), tree.choices)[-1]
    return Case(label, engine, {"tree": tree}, tree.size, expected=expected)


def calibration_prompts(setup: Setup, settings: VariantSettings) -> list[list[int]]:
    """The prompts of the calibration files, or the shipped ones. Raises MedusaError when none is left."""
    files = setup.files(settings.calibration)
    if not files:
        return shipped_prompts(setup.engine)
    prompts = [p for file in files for p in read_prompts(file, setup.engine)[settings.calibration_skip :]]
    if not prompts:
        raise MedusaError(f"--calibration-skip {settings.calibration_skip} leaves no prompt: lower it")
    return prompts


def base_info(engine: Engine) -> EngineInfo:
    """The variants' common base, for the record; its rows say whose heads are measured."""
    return replace(engine.info, name=engine.info.base, heads=None)


def variant_notes(setup: Setup, settings: VariantSettings, names: list[str]) -> list[str]:
    """Where the variants came from, and whether their trees were chosen on what is measured."""
    given = read_folders(settings.variants, names)
    notes = [f"{', '.join(given)}: trained beforehand, in the folders of the command."] if given else []
    if trained := [name for name in names if name not in given]:
        text = f"the text {Path(settings.data).name}" if settings.data else "text that the base wrote itself"
        each = f"{settings.tokens:,} tokens each in all"
        notes.append(f"{', '.join(trained)}: trained by this command on {text}, {each}.")
    chosen_on = calibration_prompts(setup, settings)
    if shared := sum(prompt in chosen_on for prompt in setup.all_prompts):
        notes.append(f"{shared} of the {len(setup.all_prompts)} prompts also served to calibrate the trees.")
    return notes
