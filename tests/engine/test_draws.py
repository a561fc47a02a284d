"""One token a row by one random number: its distribution, overflows that are told, tiny temperatures."""

from __future__ import annotations

import pytest
import tiny
import torch
from bad_answers import CPU
from scipy import stats

from medusa_core.acceptance import NoSettings, match
from medusa_core.acceptance.sampling import choose, drawn, entropy, probabilities, require_drawn
from medusa_core.errors import MedusaError


def test_tokens_follow_their_probabilities():
    generator = torch.Generator().manual_seed(0)
    probs = torch.tensor([[0.5, 0.0, 0.3, 0.1999, 0.0001, 0.0], [0.0, 1 / 3, 0.0, 1 / 3, 1 / 3, 0.0]])
    count = 100_000
    for row in probs:
        tokens = drawn(row.expand(count, -1), generator)
        found = torch.bincount(tokens, minlength=6)
        possible = row > 0
        assert not found[~possible].any()
        wanted = row.double()[possible] / row.double().sum() * count
        assert stats.chisquare(found[possible].numpy(), wanted.numpy()).pvalue > 1e-4


def test_rows_are_drawn_apart_and_a_seed_repeats_them():
    probs = torch.full((2, 1000), 1e-3)
    first, again = (drawn(probs, torch.Generator().manual_seed(3)).tolist() for _ in range(2))
    assert first == again
    assert first[0] != first[1]


def test_a_token_that_is_certain_is_drawn_at_either_end():
    generator = torch.Generator().manual_seed(1)
    certain = torch.eye(500)[[0, 250, 499]]
    for _ in range(200):
        assert drawn(certain, generator).tolist() == [0, 250, 499]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_what_is_no_distribution_is_told(temperature):
    logits = torch.tensor([[0.0, torch.nan, 1.0], [torch.inf, torch.inf, 0.0]])
    tokens = choose(logits, temperature, torch.Generator().manual_seed(0)).tolist()
    for token in tokens:
        with pytest.raises(
            MedusaError, match=r"not a number, its weights are damaged .* use --dtype float32"
        ):
            require_drawn([token], 3)
    require_drawn([0, 1, 2], 3)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_an_overflow_behind_a_refused_guess_changes_nothing(temperature):
    tree = tiny.token_tree([-1, 0, 0], [0, 1, 2])
    # Node 1 passes, 2 does not.
    logits = torch.tensor([[0.0, 99.0, 0.0], [99.0, 0.0, 0.0], [torch.nan] * 3])
    rule = match.MatchRule(temperature, NoSettings(), torch.Generator())
    verdict = rule(tree, logits)
    assert (verdict.path, verdict.bonus) == ([0, 1], 0)
    with pytest.raises(MedusaError, match="not a number"):
        rule(tree, logits[[0, 2, 1]])


@pytest.mark.parametrize(
    ("acceptance", "temperature"),
    [("match", 0.0), *((rule, 0.7) for rule in ("match", "typical", "rejection", "nucleus"))],
)
def test_an_overflow_in_a_later_step_is_told(engine, monkeypatch, acceptance, temperature):
    """Token 0 would be the choice otherwise."""
    forward, calls = engine.target.forward, []

    class Overflowing:
        def __getattr__(self, name):
            return getattr(forward, name)

        def __call__(self, parts):
            outputs = forward(parts)
            calls.append(outputs)
            if len(calls) > 3:
                outputs[0][0].fill_(torch.nan)
            return outputs

    monkeypatch.setattr(engine.target, "forward", Overflowing())
    with pytest.raises(MedusaError, match="the model's output is not a number"):
        tiny.run(engine, method="none", acceptance=acceptance, temperature=temperature, max_new_tokens=9)
    assert len(calls) == 4


# --- A temperature that float32 rounds to zero means the argmax, and is no fault of the weights.


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


def test_transformers_own_generate_is_benched_at_it_too(command, shop):
    flags = ["--limit", 1, "--runs", 1, "--max-new-tokens", 4, "--methods", "none,hf", *CPU]
    prompts = ["--prompts", shop.engine / "text.jsonl"]
    code, _, err = command(["bench", "--model", shop.engine, "--temperature", "1e-50", *prompts, *flags])
    assert code == 0, err


def test_temperature_zero_has_no_distribution():
    with pytest.raises(ValueError, match="no distribution"):
        probabilities(torch.zeros(1, 3), 0.0)
