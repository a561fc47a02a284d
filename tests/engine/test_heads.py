"""The stacked heads against a plain loop of modules, one head after the other."""

from __future__ import annotations

import pytest
import tiny
import torch
from torch import nn

from medusa_core.drafters.medusa.heads import MedusaHeads


class SlowHead(nn.Module):
    """One head as the paper writes it: x + SiLU(Wx + b), L times, then a linear layer without bias."""

    def __init__(self, heads, number):
        super().__init__()
        width = heads.block_weight.shape[-1]
        last = heads.lm_weight if heads.shares_lm_head else heads.lm_weight[number]
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(heads.layers))
        for layer, block in enumerate(self.blocks):
            block.weight.data = heads.block_weight[number, layer]
            block.bias.data = heads.block_bias[number, layer]
        self.last = nn.Linear(width, last.shape[0], bias=False)
        self.last.weight.data = last

    def forward(self, x):
        for block in self.blocks:
            x = x + nn.functional.silu(block(x))
        return self.last(x)


def shared(heads, lm_head):
    return MedusaHeads(heads.block_weight.data, heads.block_bias.data, lm_head)


@pytest.mark.sample
@pytest.mark.parametrize("count", [1, 3, 5])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("shares", [False, True])
def test_stacked_forward_equals_a_loop_over_heads(model, count, layers, shares):
    heads = tiny.random_heads(model, count, layers)
    if shares:
        heads = shared(heads, model.get_output_embeddings().weight)
    hidden = torch.randn(7, 32, generator=torch.Generator().manual_seed(0))
    wanted = torch.stack([SlowHead(heads, number)(hidden) for number in range(count)])
    torch.testing.assert_close(heads(hidden), wanted, atol=1e-5, rtol=1e-5)
    assert (heads.count, heads.layers, heads.shares_lm_head) == (count, layers, shares)


@pytest.mark.parametrize(("layers", "shares"), [(1, False), (3, False), (2, True)])
def test_fresh_heads_predict_what_the_lm_head_predicts(model, layers, shares):
    """Also those that stand on the LM head itself."""
    lm_head = model.get_output_embeddings()
    heads = MedusaHeads.fresh(lm_head.weight, heads=4, layers=layers, shared=shares)
    assert (heads.count, heads.layers, heads.shares_lm_head) == (4, layers, shares)
    assert (heads.lm_weight.data_ptr() == lm_head.weight.data_ptr()) == shares
    hidden = torch.randn(5, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(heads(hidden), lm_head(hidden).expand(4, -1, -1), atol=1e-5, rtol=1e-5)


def test_fresh_heads_own_their_weights(model):
    """Training one head must change neither the base nor the other heads."""
    lm_head = model.get_output_embeddings().weight
    before = lm_head.clone()
    heads = MedusaHeads.fresh(lm_head, heads=2, layers=1)
    heads.lm_weight.data[0] += 1.0
    assert torch.equal(lm_head, before)
    assert torch.equal(heads.lm_weight[1], before)


def test_a_shared_lm_head_is_neither_trained_nor_saved(model):
    lm_head = model.get_output_embeddings().weight
    own = MedusaHeads.fresh(lm_head, 2, 1)
    heads = shared(own, lm_head)
    assert "lm_weight" not in heads.state_dict()
    assert [name for name, _ in heads.named_parameters()] == ["block_weight", "block_bias"]
    assert heads.lm_weight.data_ptr() == lm_head.data_ptr()
    assert "lm_weight" in own.state_dict()
