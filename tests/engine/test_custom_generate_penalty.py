"""The contextual penalty inside transformers' ``generate``: what our own loop gives with it."""

from __future__ import annotations

import pytest
import tiny
import torch
from custom import by_medusa, plain
from transformers import LogitsProcessorList

from medusa_core.config import GenerationConfig
from medusa_core.custom_generate.rules import PenaltyProcessor
from medusa_core.errors import MedusaError

PENALTY = {"medusa_penalty": 1.4, "medusa_penalty_window": 6}


@pytest.fixture
def generate(model):
    return by_medusa(model, tiny.fitted_heads(model))


def test_greedy_output_is_plain_decodings_with_the_penalty(engine, generate):
    found = generate(do_sample=False, max_new_tokens=30, **PENALTY)[0].tolist()
    prompt, text = found[:-30], found[-30:]
    config = GenerationConfig.of(method="none", max_new_tokens=30, penalty=1.4, penalty_window=6)
    assert text == tiny.emitted(engine.stream(prompt, config))


def test_a_seed_samples_what_transformers_samples_with_such_a_processor(model, generate):
    """Before min-p, which must see what the penalty has made of the logits."""
    settings = {"do_sample": True, "temperature": 0.9, "min_p": 0.1, "max_new_tokens": 30}
    torch.manual_seed(4)
    own = PenaltyProcessor(1.4, 6)
    expected = plain(model, **settings, logits_processor=LogitsProcessorList([own]))
    torch.manual_seed(4)
    assert torch.equal(generate(**settings, **PENALTY), expected)


def test_typical_acceptance_takes_it(generate):
    torch.manual_seed(0)
    settings = {"do_sample": True, "temperature": 0.9, "medusa_acceptance": "typical", "max_new_tokens": 30}
    assert not torch.equal(generate(**settings, **PENALTY), generate(**settings))


@pytest.mark.parametrize("wrong", [{"medusa_penalty": 0.5}, {"medusa_penalty_window": -1}], ids=str)
def test_values_out_of_range_are_refused(generate, wrong):
    with pytest.raises(MedusaError, match="penalty"):
        generate(max_new_tokens=4, **wrong)
