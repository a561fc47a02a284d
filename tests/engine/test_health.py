"""The health check: heads of this base pass; heads of another, untrained, damaged, weaker ones do not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import tiny
import torch

from medusa_core.drafters.medusa import medusa_draft
from medusa_core.drafters.medusa import with_heads as changed_heads
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.errors import MedusaError
from medusa_core.evaluation import head_check
from medusa_core.evaluation.head_check import check_heads


def with_heads(engine, heads):
    return changed_heads(engine, heads=heads)


def slow_accuracy(engine, text, head):
    """Head by head and position by position, on a given text."""
    tokens = engine.encode(text)
    hits = []
    for position in range(len(tokens) - head - 1):
        ids = torch.tensor([tokens[: position + 1]])
        hidden = engine.target.model(ids, output_hidden_states=True).hidden_states[-1][0, -1]
        guess = int(medusa_draft(engine).heads(hidden[None])[head - 1, 0].argmax())
        hits.append(guess == tokens[position + head + 1])
    return sum(hits) / len(hits)


def test_heads_of_this_base_are_fine(shipped):
    """Heads of a random base are not better than saying one thing always; these are trained."""
    report = check_heads(shipped, new_tokens=24)
    assert report.ok
    assert report.heads[0].accuracy > 2 * report.heads[0].baseline
    assert [head.head for head in report.heads] == [1, 2, 3, 4, 5]
    assert report.positions == 4 * 23
    assert (
        medusa_draft(shipped).accuracies is not None
    )  # and they are about as good as they were when measured


@pytest.mark.slow
def test_heads_of_another_base_are_not(shipped):
    """Heads for another vocabulary of the same size, and heads for other hidden states."""
    heads = medusa_draft(shipped).heads
    order = torch.randperm(heads.lm_weight.shape[1], generator=torch.Generator().manual_seed(0))
    width = torch.randperm(heads.lm_weight.shape[2], generator=torch.Generator().manual_seed(0))
    for last in (heads.lm_weight[:, order], heads.lm_weight[:, :, width]):
        other = MedusaHeads(heads.block_weight.data, heads.block_bias.data, last)
        report = check_heads(with_heads(shipped, other), new_tokens=24)
        assert report.verdict == "doubtful"
        assert "do not seem to belong together: head 1 is right" in report.message
        assert not any(head.better for head in report.heads)


@pytest.mark.slow
def test_heads_that_were_better_when_measured(shipped):
    """As the right heads on another version of their base: not chance, and not what they were."""
    heads = medusa_draft(shipped).heads
    noise = torch.randn(heads.lm_weight.shape, generator=torch.Generator().manual_seed(0))
    last = heads.lm_weight + 0.7 * heads.lm_weight.std() * noise
    worse = with_heads(shipped, MedusaHeads(heads.block_weight.data, heads.block_bias.data, last))
    report = check_heads(worse, new_tokens=24)
    assert report.verdict == "weaker"
    measured = f"{medusa_draft(shipped).accuracies[0][0]:.0%}"
    assert f"were right {measured} of the time when measured, here it is" in report.message
    assert check_heads(changed_heads(worse, accuracies=None), new_tokens=24).ok


@pytest.mark.parametrize("shared", [False, True])
def test_fresh_heads_are_untrained(engine, shared):
    lm_head = engine.target.model.get_output_embeddings().weight.detach()
    heads = MedusaHeads.fresh(lm_head, 3, 1)
    if shared:
        heads = MedusaHeads(heads.block_weight.data, heads.block_bias.data, lm_head)
    assert check_heads(with_heads(engine, heads)).verdict == "untrained"


def test_heads_that_are_never_right_are_blamed_and_not_the_text(engine, monkeypatch):
    """The tiny model repeats itself, which says little about heads unless they never guess it."""

    asked = head_check._asked_of(engine)

    def wrong(text):
        return torch.full((asked.count, len(text.tokens) - text.start), -1)

    monkeypatch.setattr(head_check, "_asked_of", lambda _: replace(asked, guesses=wrong))
    report = check_heads(engine)
    assert report.verdict == "doubtful"
    assert "do not seem to belong together: head 1 is right 0% of the time" in report.message
    assert check_heads(engine, "a" * 80).verdict == "unclear"  # a given text may say one thing alone


def test_heads_that_are_not_finite_are_damaged(engine, model):
    heads = tiny.fitted_heads(model)
    heads.lm_weight.data[2, 1, 1] = torch.nan
    report = check_heads(with_heads(engine, heads))
    assert (report.verdict, report.heads) == ("damaged", [])


def test_a_given_text_is_counted_as_it_stands(engine):
    text = engine.decode_text(tiny.greedy_texts(engine.target.model, 1, 60)[0].tolist())
    report = check_heads(engine, text)
    for head in report.heads:
        assert head.accuracy == pytest.approx(slow_accuracy(engine, text, head.head), abs=1e-4)
    assert report.positions == len(engine.encode(text)) - 2


def test_the_baselines_count_what_needs_no_heads(engine):
    """Of "abababab…": half is the most frequent letter; the next token over again is right for head 2."""
    report = check_heads(engine, "ab" * 30)
    assert report.heads[0].baseline == pytest.approx(0.5, abs=0.01)
    assert report.heads[1].baseline == 1.0
    assert not report.heads[1].better
    report = check_heads(engine, "a" * 80)
    assert report.verdict == "unclear"
    assert "repeats itself" in report.message


def test_texts_that_are_too_short(engine):
    assert "has only 18 positions" in check_heads(engine, "abcdefghijklmnopqrst").message
    with pytest.raises(MedusaError, match="the text has 4 tokens, 5 are needed: give a longer one"):
        check_heads(engine, "abcd")
    with pytest.raises(MedusaError, match="tiny has no heads: name them with --heads"):
        check_heads(replace(engine, drafts={}))


def test_a_text_longer_than_the_context_is_cut(engine):
    assert check_heads(engine, "abcdef" * 100).positions == engine.target.context - 2


def test_the_command(engine_folder, tmp_path, command):
    code, out, err = command(["heads", "check", "--device", "cpu"])
    assert code == 0
    assert "fine: head 1 is right" in out
    assert out.count("%") >= 10
    assert "warning" not in err
    base, heads = ["--model", engine_folder], tmp_path / "heads"
    assert command(["heads", "init", *base, "--out", heads, "--num-heads", 2])[0] == 0
    flags = ["heads", "check", "--device", "cpu", *base, "--heads", heads]
    code, _, err = command(flags)
    assert (code, err.startswith("warning: the heads are untrained")) == (0, True)
    record = json.loads(command([*flags, "--json"])[1])
    assert (record["ok"], record["verdict"], len(record["heads"])) == (False, "untrained", 2)
    code, _, err = command(["heads", "check", *base, "--heads", "none"])
    assert (code, err) == (2, "error: model has no heads: name them with --heads\n")
