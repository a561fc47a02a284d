"""The optimizers of the recipes: what Muon trains, that its runs learn and go on, what is refused."""

from __future__ import annotations

import eagle3_files
import pytest
import torch
from training_corpus import losses_of
from training_runs import finish, settings_for

from medusa_core.drafters.eagle3.model import DraftModel
from medusa_core.drafters.eagle3.shape import DraftShape
from medusa_core.errors import MedusaError
from medusa_core.training.config import Eagle3Config, HydraConfig, Medusa1Config
from medusa_core.training.optimizers import Muon, make_optimizers, muon_and_adamw
from medusa_core.training.recipes import train


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
