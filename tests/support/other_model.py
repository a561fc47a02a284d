"""A second model for tests in which one takes another's place."""

from __future__ import annotations

import shutil
from pathlib import Path

import tiny
import torch

from medusa_core.checkpoints.names import HEADS_FOLDER
from medusa_core.drafters.medusa.files import save_heads


def other_model(first: Path, parent: Path) -> Path:
    """The folder ``other``: the first model's tokenizer, other texts, and two heads without a tree."""
    folder = shutil.copytree(first, parent / "other", ignore=shutil.ignore_patterns("heads"))
    model = tiny.frequent_zero_model(kv_heads=2, seed=7)
    model.save_pretrained(folder)
    heads = folder / HEADS_FOLDER
    save_heads(tiny.fitted_heads(model, 2), heads, "other", torch.float32)
    return folder
