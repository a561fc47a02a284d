"""Guesses that a draft model draws, judged under penalty and min-p: exactly the processed distribution.

q is the draft model's own, p is processed: the residual of a rejected guess must be of the processed p.
"""

from __future__ import annotations

import numpy as np
import plain_penalty
import pytest
import table_models
import test_rejection_exact as drawn
import torch
from chi_square import LEAST_P, p_value

from medusa_core.acceptance import make_rule, sampling_of
from medusa_core.acceptance.logits.processor import processor_of
from medusa_core.config import GenerationConfig
from medusa_core.decoding import decode
from medusa_core.drafters import make_drafter
from medusa_core.drafters.draft_model.draft import ModelDraft
from medusa_core.text.stopping import Stopper

V, RUNS = drawn.V, 700
SETTINGS = {"temperature": drawn.TEMPERATURE, "penalty": 1.8, "penalty_window": 3, "min_p": 0.15}
ROWS = [
    pytest.param({"draft_depth": 2}, id="chain"),
    pytest.param(drawn.TREE, id="tree", marks=pytest.mark.slow),
]


def wanted(*, processed=True):
    """Exact joint probabilities of three new tokens [V, V, V], the slow way, or those without processing."""
    table = table_models.tables(V)[0]

    def after(text):
        logits = table[text[-2], text[-1]]
        if processed:
            logits = plain_penalty.penalised(logits, text, SETTINGS["penalty"], SETTINGS["penalty_window"])
            logits = plain_penalty.likely(logits, SETTINGS["temperature"], SETTINGS["min_p"])
        return (logits.double() / SETTINGS["temperature"]).softmax(dim=-1)

    found, text = torch.zeros(V, V, V, dtype=torch.double), drawn.PROMPT
    for a in range(V):
        for b in range(V):
            found[a, b] = after(text)[a] * after([*text, a])[b] * after([*text, a, b])
    return found.numpy()


@pytest.mark.parametrize("settings", ROWS)
def test_three_tokens_have_the_processed_distribution(settings):
    target, small = map(table_models.TableTarget, table_models.tables(V))
    table, accepted = np.zeros((V, V, V)), 0
    for seed in range(RUNS):
        config = GenerationConfig.of(
            method="draft_model", acceptance="rejection", seed=seed, **SETTINGS, **settings
        )
        generator = torch.Generator().manual_seed(seed)
        drafter = make_drafter(target, {"draft_model": ModelDraft(small)}, config)
        drafter.sample_by(sampling_of(config, generator))
        tokens, rule = [], make_rule(config, generator)
        stopper = Stopper(frozenset(), (), drawn.NEW, decode=str)
        processor = processor_of(config)
        for step in decode(target, drafter, rule, drawn.PROMPT, stopper, drawn.NEW, processor=processor):
            tokens += step.emitted
            accepted += len(step.verdict.path) - 1
        table[tuple(tokens)] += 1
    right = wanted()
    assert table[right == 0].sum() == 0
    assert accepted > RUNS / 5
    assert p_value(table, right) > LEAST_P
    assert p_value(table, wanted(processed=False)) < LEAST_P
