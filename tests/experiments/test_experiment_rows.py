"""From measurements to the rows of an experiment, and how the quality of a text is judged."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
import tiny
import torch
from tiny_experiments import build_setup

from medusa_core.errors import MedusaError
from medusa_core.evaluation.turns import Measurement, MethodLog, interleave
from medusa_core.experiments import quality, rows


@pytest.fixture(scope="module")
def setup(engine_folder):
    return build_setup(engine_folder)


def log_of(*rounds):
    """A log from (tokens, seconds, steps) of each prompt in each round."""
    phases = {"propose": 1.0, "verify": 2.0, "accept": 0.5, "commit": 0.5, "total": 4.0}

    def measured(tokens, seconds, steps):
        return Measurement([1] * tokens, seconds, steps, {name: ms * steps for name, ms in phases.items()})

    return MethodLog([[measured(*entry) for entry in r] for r in rounds])


# ---- from measurements to rows


def test_a_row_says_what_was_measured():
    fast = log_of([(10, 1.0, 4), (20, 1.0, 8)], [(10, 2.0, 4), (20, 1.0, 8)])
    plain = log_of([(10, 2.0, 10), (20, 4.0, 20)], [(10, 2.0, 10), (20, 4.0, 20)])
    row = rows.make_row(fast, plain, series="a", label="b", tree_nodes=7)
    assert (row.prompts, row.new_tokens, row.tree_nodes) == (2, 60, 7)
    assert row.tokens_per_step.mean == 30 / 12
    assert row.tokens_per_second.median == pytest.approx(statistics.median([15, 10]))
    assert row.tokens_per_second.low == 10
    assert row.speedup.high == pytest.approx(15 / 5)
    assert row.overhead == 1.0
    assert row.phase_ms == {"propose": 1.0, "verify": 2.0, "accept": 0.5, "commit": 0.5}


def test_the_error_of_a_ratio_is_that_of_a_mean_when_all_parts_weigh_alike():
    values = [3.0, 5.0, 4.0, 8.0]
    found = rows.ratio(values, [1.0] * 4)
    assert found.mean == statistics.mean(values)
    assert found.standard_error == pytest.approx(statistics.stdev(values) / 2, abs=1e-5)
    assert rows.ratio([6.0], [2.0]).standard_error is None


def test_the_error_of_a_ratio_agrees_with_leaving_out_one_prompt_at_a_time():
    generator = torch.Generator().manual_seed(0)
    below = (10 + torch.rand(200, generator=generator) * 5).tolist()
    above = [b * (2 + float(torch.randn(1, generator=generator)) * 0.2) for b in below]
    left_out = [(sum(above) - a) / (sum(below) - b) for a, b in zip(above, below, strict=True)]
    slow = math.sqrt(199 / 200 * sum((value - statistics.mean(left_out)) ** 2 for value in left_out))
    assert rows.ratio(above, below).standard_error == pytest.approx(slow, rel=0.02)


def test_parts_and_unions_of_logs():
    log = log_of([(1, 1, 1), (2, 1, 1), (3, 1, 1)])
    assert rows.by_prompt(log.only([0, 2]), lambda m: len(m.tokens)) == [1, 3]
    assert rows.by_prompt(rows.merged([log, log]), lambda m: len(m.tokens)) == [2, 4, 6]


def test_repeated_pieces_are_counted_within_a_text():
    def text(*tokens):
        return Measurement(list(tokens), 1.0, 1, {})

    assert rows.distinct_share([text(1, 2, 3, 1, 2, 3)]) == pytest.approx(3 / 4)
    assert rows.distinct_share([text(1, 2, 3), text(1, 2, 3)]) == 1.0
    assert rows.distinct_share([text(1, 2)]) is None


def test_runners_take_turns_and_the_order_rotates():
    calls = []

    def runner(name):
        return lambda prompt: calls.append((name, prompt[0])) or Measurement([0], 1.0, 1, {})

    logs = interleave({name: runner(name) for name in "abc"}, [[1], [2]], rounds=2)
    assert calls[:3] == [("a", 1), ("b", 1), ("c", 1)]  # warming up
    assert calls[3:] == [
        ("a", 1), ("b", 1), ("c", 1), ("b", 2), ("c", 2), ("a", 2),
        ("b", 1), ("c", 1), ("a", 1), ("c", 2), ("a", 2), ("b", 2),
    ]  # fmt: skip
    assert all([len(r) for r in log.rounds] == [2, 2] for log in logs.values())


# ---- quality


def test_the_judges_likelihood_equals_a_token_by_token_count(setup):
    target, before, tokens = setup.engine.target, [1, 2, 0], [3, 0, 7, 7]
    slow = 0.0
    for place, token in enumerate(tokens):
        with torch.inference_mode():
            logits = target.model(torch.tensor([before + tokens[:place]])).logits[0, -1]
        slow += float(torch.log_softmax(logits, dim=-1)[token])
    assert quality.log_likelihood(target, quality.Text(before, tokens)) == pytest.approx(slow, rel=1e-5)


def test_heldout_loss_equals_the_library_s_own(setup, tmp_path):
    file = tmp_path / "heldout.txt"
    file.write_text("abcabdaccadb\n<|endoftext|>\nfghfg\n", encoding="utf-8")
    texts = quality.read_heldout(file, setup.engine, window=5, most=10)
    assert [len(text.tokens) for text in texts] == [4, 4, 1, 4]
    heldout = quality.Heldout.of(setup.engine.target, texts)
    total = 0.0
    for text in texts:
        ids = torch.tensor([text.before + text.tokens])
        with torch.inference_mode():
            total += float(setup.engine.target.model(ids, labels=ids).loss) * len(text.tokens)
    assert heldout.mean().mean == pytest.approx(total / 13, rel=1e-4)
    assert heldout.change(heldout).mean == heldout.change(heldout).standard_error == 0
    assert len(quality.read_heldout(file, setup.engine, window=5, most=2)) == 2


def test_a_judge_of_another_vocabulary_is_refused(setup):
    other = replace(setup.engine, tokenizer=tiny.tiny_tokenizer(end_token=3))
    other.tokenizer.add_tokens(["new"])
    with pytest.raises(MedusaError, match="same vocabulary"):
        quality.require_same_tokens(other, setup.engine)
