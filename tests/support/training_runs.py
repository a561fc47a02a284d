"""Short runs of the recipes on the tiny base that has learned the small corpus."""

from __future__ import annotations

from medusa_core.training.config import Medusa2Config
from medusa_core.training.recipes import train


def settings_for(base, out, **changes):
    """Settings of a run of 30 steps on the small corpus."""
    corpus = base.parent.parent
    return {
        "model": str(base), "out": str(out), "recipe": str(corpus / "recipe.json"), "data_root": str(corpus),
        "tokens": 30 * 512, "batch_tokens": 512, "sequence_length": 64, "heads": 3, "warmup_steps": 4,
        "learning_rate": 5e-3, "precision": "float32", "checkpoint_every": 10, "heldout_windows": 4,
    } | changes  # fmt: skip


def medusa2_config(base, out, **changes):
    return Medusa2Config(**settings_for(base, out, lora_rank=4, **changes))


def finish(config):
    """Train to the end; the result's folder."""
    *_, last = train(config)
    return last.folder
