"""TokenSwift keeps the model's own distribution and text, on drafts that see a part of the text."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import tiny
from chi_square import LEAST_P, NEW, joint, p_value
from test_exact_sampling import TEMPERATURE, V, next_p
from tokenswift_heads import random_tokenswift, with_tokenswift

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters.tokenswift.draft import TokenSwiftDraft
from medusa_core.loading.load import load_engine

pytestmark = pytest.mark.slow

PROMPT = tiny.random_tokens(40, seed=2, vocabulary=V)  # longer than what a draft sees
RUNS = 2000
PART = {"draft_budget": 32, "draft_sinks": 8}


@pytest.mark.parametrize("rule", ["match", "rejection"])
def test_sampling_has_the_model_s_own_distribution(rule):
    """The first three new tokens over seeded runs: in the public code a draw a path biases them."""
    model = tiny.build_model(tiny.tiny_config(kv_heads=2, vocab_size=V, initializer_range=0.25), seed=3)
    wanted = joint(partial(next_p, model), PROMPT, V)
    engine = with_tokenswift(tiny.build_engine(model, None, tokenizer=False))
    counts, longest = np.zeros((V, V, V)), 0
    for seed in range(RUNS):
        config = GenerationConfig.of(
            method="tokenswift", tree="cartesian-2x3x2", acceptance=rule, temperature=TEMPERATURE, seed=seed,
            max_new_tokens=NEW, **PART,
        )  # fmt: skip
        steps = list(engine.stream(PROMPT, config))
        counts[tuple(tiny.emitted(steps))] += 1
        longest = max(longest, *(len(step.verdict.path) for step in steps))
    assert p_value(counts, wanted, 40) > LEAST_P
    assert longest > 2


def test_the_embedded_model_says_what_it_says_alone():
    """In float32, over a text many times as long as what a draft sees."""
    engine = load_engine(LoadConfig(dtype="float32", device="cpu"))
    draft = TokenSwiftDraft(random_tokenswift(engine.target.model))
    engine = replace(engine, drafts={"tokenswift": draft})
    prompt = engine.encode("Once upon a time, there was a small owl who lived in an old oak.")
    config = GenerationConfig.of(max_new_tokens=600, method="tokenswift", ignore_eos=True, **PART)
    steps = list(engine.stream(prompt, config))
    plain = list(engine.stream(prompt, config.changed(method="none")))
    assert tiny.emitted(steps) == tiny.emitted(plain)
    assert len(plain) > 1.2 * len(steps)
