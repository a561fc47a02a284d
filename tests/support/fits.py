"""Fits that take seconds: their settings, a plan of a fixed length, and a watcher that ignores everything."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from training_corpus import SENTENCES

from medusa_core.training.fit.plan import Rates, write_plan
from medusa_core.training.fit.run import prepare
from medusa_core.training.fit.settings import FitConfig

RATES = Rates(answers=1000.0, tokens_per_answer=100.0, heads=2000.0, decoding=500.0)


def ignore(_record):
    """A watcher that ignores every record."""


def tiny_config(base, folder, **changes):
    """A fit that takes seconds, on prompts like the text the base has learned."""
    prompts = folder / "asked.jsonl"
    lines = [json.dumps({"text": sentence}) for sentence in SENTENCES]
    prompts.write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = {
        "model": str(base), "out": str(folder / "fit"), "prompts": str(prompts), "minutes": 0.1, "heads": 3,
        "batch_tokens": 512, "sequence_length": 64, "answer_tokens": 24, "answer_batch": 16,
        "dtype": "float32", "device": "cpu",
    }  # fmt: skip
    return FitConfig(**settings | changes)


def prepared_for(config, steps):
    """A prepared fit of a fixed length: what the minutes allow depends on the load of the machine."""
    prepared = prepare(config, ignore)
    tokens = steps * prepared.plan.batch_tokens
    plan = replace(prepared.plan, answers=160, tokens=tokens, joint_tokens=tokens if config.joint else 0)
    write_plan(Path(config.out), config, plan)
    return replace(prepared, plan=plan)
