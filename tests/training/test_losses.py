"""Training losses against slow, position-by-position versions."""

from __future__ import annotations

import math

import pytest
import tiny
import torch
from torch.nn import functional as F

from medusa_core.training.data import Batch
from medusa_core.training.drafter_run import EVALUATION_ROWS, heldout_scores, numbered
from medusa_core.training.losses import (
    distillation_loss,
    head_losses,
    next_token_loss,
    predictions,
    scores_of,
    sine_weight,
    weighted_sum,
)

ALL = torch.ones(2, 12, dtype=torch.bool)
SOME = torch.rand(2, 12, generator=torch.Generator().manual_seed(3)) < 0.5


def random_text():
    return torch.tensor([tiny.random_tokens(12, seed=s) for s in (1, 2)])


@pytest.mark.sample
@pytest.mark.parametrize("trained", [ALL, SOME], ids=["text", "answers"])
@pytest.mark.parametrize("shared", [False, True])
def test_head_losses_equal_the_position_by_position_version(model, shared, trained):
    heads = tiny.random_heads(model)
    if shared:
        heads = type(heads)(heads.block_weight.data, heads.block_bias.data, heads.lm_weight.data[0])
    tokens, hidden = random_text(), torch.randn(2, 12, 32)
    scores = scores_of(predictions(heads, hidden, tokens, trained))
    torch.testing.assert_close(head_losses(heads, hidden, tokens, trained), scores.loss)
    for k in range(heads.count):
        losses, first, fifth = [], [], []
        for row in range(2):
            for t in range(12 - k - 2):
                if not trained[row, t + k + 2]:
                    continue
                wanted = tokens[row, t + k + 2]
                logits = heads(hidden[row, t][None])[k, 0]
                losses.append(F.cross_entropy(logits[None], wanted[None]))
                best = logits.topk(5).indices.tolist()
                first.append(best[0] == wanted)
                fifth.append(int(wanted) in best)
        assert scores.loss[k].item() == pytest.approx(torch.stack(losses).mean().item(), abs=1e-5)
        assert float(scores.top1[k]) == pytest.approx(sum(map(float, first)) / len(first))
        assert float(scores.top5[k]) == pytest.approx(sum(map(float, fifth)) / len(fifth))


def test_a_batch_without_answers_costs_nothing_and_has_a_gradient(model):
    heads = tiny.random_heads(model).requires_grad_(True)
    nothing = torch.zeros(2, 12, dtype=torch.bool)
    losses = head_losses(heads, torch.randn(2, 12, 32), random_text(), nothing)
    losses.sum().backward()
    assert losses.tolist() == [0, 0, 0]
    assert float(heads.lm_weight.grad.abs().sum()) == 0


def test_the_base_is_judged_by_the_next_token_where_it_counts():
    tokens, logits = random_text(), torch.randn(2, 12, tiny.VOCABULARY)
    wanted = [
        F.cross_entropy(logits[row, t], tokens[row, t + 1])
        for row in range(2) for t in range(11) if SOME[row, t + 1]
    ]  # fmt: skip
    assert float(next_token_loss(logits, tokens, SOME)) == pytest.approx(
        float(torch.stack(wanted).mean()), abs=1e-5
    )


def test_distillation_is_the_divergence_from_teacher_to_student():
    student, teacher = torch.randn(2, 12, tiny.VOCABULARY), torch.randn(2, 12, tiny.VOCABULARY)
    slow = []
    for row in range(2):
        for t in range(11):
            if SOME[row, t + 1]:
                p, q = teacher[row, t].softmax(-1), student[row, t].softmax(-1)
                slow.append(float((p * (p / q).log()).sum()))
    assert float(distillation_loss(student, teacher, SOME)) == pytest.approx(sum(slow) / len(slow), abs=1e-5)
    assert float(distillation_loss(teacher, teacher, SOME)) == pytest.approx(0, abs=1e-6)


def test_the_medusa_loss_weighs_heads_by_powers_of_lambda():
    assert float(weighted_sum(torch.tensor([1.0, 2.0]), 0.8)) == pytest.approx(0.8 * 1 + 0.64 * 2)


def test_the_sine_schedule_rises_from_nothing_to_the_peak():
    weights = [sine_weight(0.2, step, 100) for step in range(100)]
    assert weights[0] < 0.01
    assert weights == sorted(weights)
    assert weights[49] == pytest.approx(0.2 * math.sin(math.pi / 4))
    assert weights[-1] == pytest.approx(0.2)


def test_held_out_scores_are_means_over_all_tokens_whatever_their_batch(model):
    """The first of two batches has many trained tokens, the second few."""
    heads, count = tiny.random_heads(model), 2 * EVALUATION_ROWS
    tokens = torch.tensor([tiny.random_tokens(12, seed=seed) for seed in range(count)])
    trained = torch.ones(count, 12, dtype=torch.bool)
    trained[EVALUATION_ROWS:] = False
    trained[-1, :5] = True

    def score(batch):
        hidden = F.one_hot(batch.tokens, 32).float()
        logits = F.one_hot(batch.tokens, model.config.vocab_size).float()
        return scores_of(predictions(heads, hidden, batch.tokens, batch.trained)), logits

    whole, logits = score(Batch(tokens, trained))
    found = heldout_scores(score, {"x": Batch(tokens, trained)}, torch.device("cpu"), bf16=False)
    wanted = {"heldout/x/base": next_token_loss(logits, tokens, trained)}
    for name in ("loss", "top1", "top5"):
        wanted |= numbered(f"heldout/x/{name}", getattr(whole, name))
    assert found == pytest.approx({name: float(value.detach()) for name, value in wanted.items()})
