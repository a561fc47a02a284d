"""A temperature that float32 rounds to zero means the argmax, and is no fault of the weights."""

from __future__ import annotations

import json

import pytest
import tiny
import torch
from bad_answers import CPU

from medusa_core.acceptance.sampling import choose, entropy, probabilities
from medusa_core.config import GenerationConfig

TINY = (1e-6, 1e-20, 1e-38, 1e-45, 1e-50, 1e-320, 5e-324)


@pytest.mark.parametrize("temperature", TINY)
def test_the_softmax_is_one_at_the_argmax(temperature):
    logits = torch.tensor([[1.0, 3.0, 2.0, -torch.inf], [88.0, -88.0, 87.5, 0.0]])
    assert probabilities(logits, temperature).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    assert torch.isfinite(entropy(probabilities(logits, temperature))).all()
    drawn = choose(logits, temperature, torch.Generator().manual_seed(0))
    assert drawn.tolist() == choose(logits, 0.0, None).tolist()


def test_equal_logits_share_the_probability():
    assert probabilities(torch.tensor([[2.0, 2.0, 0.0]]), 1e-50).tolist() == [[0.5, 0.5, 0]]


@pytest.mark.sample
@pytest.mark.parametrize("acceptance", ["match", "typical"])
@pytest.mark.parametrize("temperature", [1e-50, 5e-324])
def test_a_run_is_that_of_temperature_0(engine, acceptance, temperature):
    cold = tiny.emitted(tiny.run(engine, acceptance=acceptance, temperature=temperature, max_new_tokens=32))
    assert cold == tiny.emitted(tiny.run(engine, max_new_tokens=32))


def test_the_command_line_takes_it(command, shop):
    texts = []
    for temperature in ("1e-50", "0"):
        code, out, _ = command(
            ["generate", "abc", "--model", shop.engine, "--temperature", temperature, "--max-new-tokens", 8,
             "--json", *CPU]
        )  # fmt: skip
        assert code == 0
        texts.append(json.loads(out.splitlines()[-1])["token_ids"])
    assert texts[0] == texts[1]
    assert GenerationConfig.of(temperature=1e-50).temperature == 1e-50


def test_transformers_own_generate_is_benched_at_it_too(command, shop):
    flags = ["--limit", 1, "--runs", 1, "--max-new-tokens", 4, "--methods", "none,hf", *CPU]
    prompts = ["--prompts", shop.engine / "text.jsonl"]
    code, _, err = command(["bench", "--model", shop.engine, "--temperature", "1e-50", *prompts, *flags])
    assert code == 0, err
