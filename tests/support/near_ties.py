"""Recorded greedy texts on any processor: rounding chooses between two almost equally likely tokens."""

from __future__ import annotations

import torch
from plain_penalty import penalised

from medusa_core.config import GenerationConfig
from medusa_core.engine import Engine
from medusa_core.trace.builder import Record

TIE = 0.25  # gap between two logits; bfloat16 has no number between 16 and 16.125


@torch.inference_mode()
def beside_the_choice(engine: Engine, trace: Record) -> list[float]:
    """How far the logit of each recorded token is below the largest one here."""
    config, prompt = trace["config"], trace["prompt"]["token_ids"]
    text = [*prompt, *trace["output"]["token_ids"]]
    names = ("penalty", "penalty_window")
    penalty, window = (config.get(name, getattr(GenerationConfig, name)) for name in names)
    logits, _ = engine.target.read(text)
    gaps = []
    for place in range(len(prompt), len(text)):
        row = penalised(logits[place - 1].float(), text[:place], penalty, window)
        gaps.append(float(row.max() - row[text[place]]))
    return gaps
