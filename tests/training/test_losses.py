"""Training losses against slow, position-by-position versions, and the optimizers that lower them."""

from __future__ import annotations

import math

import eagle3_files
import pytest
import tiny
import torch
from torch.nn import functional as F
from training_corpus import losses_of
from training_runs import finish, settings_for

from medusa_core.drafters.eagle3.model import DraftModel
from medusa_core.drafters.eagle3.shape import DraftShape
from medusa_core.errors import MedusaError
from medusa_core.training.config import Eagle3Config, HydraConfig, Medusa1Config
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
from medusa_core.training.optimizers import Muon, make_optimizers, muon_and_adamw
from medusa_core.training.recipes import train

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


# --- The optimizers of the recipes: what Muon trains, that its runs learn and go on, what is refused.


def names_of(optimizer, model):
    names = {weight: name for name, weight in model.named_parameters()}
    return {names[weight] for group in optimizer.param_groups for weight in group["params"]}


def test_muon_has_the_matrices_and_adamw_norms_and_the_lm_head():
    model = DraftModel(DraftShape.of(eagle3_files.config()))
    muon, adamw = muon_and_adamw(model.named_parameters(), 0.02, 0.001, 0.1)
    layer = {f"self_attn.{name}_proj" for name in "qkvo"} | {
        f"mlp.{name}_proj" for name in ("gate", "up", "down")
    }
    matrices = {"fc.weight", *(f"midlayer.{name}.weight" for name in layer)}
    assert names_of(muon, model) == matrices
    assert names_of(adamw, model) == set(dict(model.named_parameters())) - matrices
    groups = muon.param_groups[0], adamw.param_groups[0]
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(0.02, 0.1), (0.001, 0.0)]


def test_the_decay_that_is_asked_for_is_that_of_the_matrices():
    config = Eagle3Config(optimizer="muon", matrix_learning_rate=0.02, matrix_decay=0.5)
    model = DraftModel(DraftShape.of(eagle3_files.config()))
    muon, adamw = make_optimizers(config, (list(model.named_parameters()), config.learning_rate))
    assert [one.param_groups[0]["weight_decay"] for one in (muon, adamw)] == [0.5, 0.0]


def test_muon_in_float32_goes_where_torchs_does():
    torch.manual_seed(0)
    start = [torch.randn(shape) for shape in ((6, 10), (10, 6), (8, 8))]
    one, other = ([torch.nn.Parameter(weight.clone()) for weight in start] for _ in range(2))
    settings = {"lr": 0.05, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"}
    ours, theirs = Muon(one, **settings), torch.optim.Muon(other, **settings)
    for _ in range(3):
        for mine, its in zip(one, other, strict=True):
            mine.grad = torch.randn_like(mine)
            its.grad = mine.grad.clone()
        ours.step()
        theirs.step()
    for mine, its, before in zip(one, other, start, strict=True):
        assert (mine - its).norm() < 0.02 * (its - before).norm()  # theirs rounds to bfloat16


def hydra_config(base, out, **changes):
    return HydraConfig(**settings_for(base, out, optimizer="muon", matrix_learning_rate=0.02, **changes))


def test_a_run_with_muon_learns_and_goes_on_as_one_that_was_not_broken_off(trained_base, tmp_path):
    finish(hydra_config(trained_base, tmp_path / "whole"))
    whole = losses_of(tmp_path / "whole")
    assert whole[30] < 0.9 * whole[10]
    records = train(hydra_config(trained_base, tmp_path / "parts"))
    while next(records).step < 15:
        pass
    records.close()
    finish(hydra_config(trained_base, tmp_path / "parts"))
    assert losses_of(tmp_path / "parts")[30] == pytest.approx(whole[30], rel=1e-5)


def test_heads_in_one_tensor_are_no_matrices(trained_base, tmp_path):
    config = Medusa1Config(**settings_for(trained_base, tmp_path / "run", optimizer="muon"))
    with pytest.raises(MedusaError, match=r"torch's Muon takes single matrices.*use --optimizer adamw"):
        finish(config)
