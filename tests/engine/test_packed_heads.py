"""Packed heads give the module's logits for one row, and are made anew for other heads."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny
import torch

from medusa_core.drafters.medusa.build import TruncatedHeads
from medusa_core.drafters.medusa.draft import MedusaDraft
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.drafters.medusa.packed import PackedHeads, packed_heads
from medusa_core.target.products import Operators

pytestmark = pytest.mark.skipif(Operators.find() is None, reason="this torch packs no weights")


def heads_of(layers, shares, count=4, width=64, vocabulary=320):
    generator = torch.Generator().manual_seed(layers)

    def random(*shape):
        return (torch.randn(*shape, generator=generator) / 8).to(torch.bfloat16)

    last = random(vocabulary, width) if shares else random(count, vocabulary, width)
    return MedusaHeads(random(count, layers, width, width), random(count, layers, width), last)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("first", [1, 3, 4])
@torch.inference_mode()
def test_packed_heads_say_what_the_module_says(layers, shares, first):
    heads = heads_of(layers, shares)
    hidden = torch.randn(1, 64, generator=torch.Generator().manual_seed(9)).to(torch.bfloat16)
    found, wanted = PackedHeads(heads, Operators.find())(hidden, first), heads(hidden, first)
    assert found.shape == wanted.shape
    torch.testing.assert_close(found, wanted, atol=2e-2, rtol=2e-2)


def test_other_heads_are_packed_anew(monkeypatch):
    monkeypatch.setattr(
        "medusa_core.drafters.medusa.packed.packing_that_wins", lambda linear: Operators.find()
    )
    one, two = heads_of(1, shares=False), heads_of(2, shares=True)
    draft = MedusaDraft(one)
    assert draft.packed is draft.packed
    changed = replace(draft, heads=two)
    hidden = torch.ones(1, 64, dtype=torch.bfloat16)
    with torch.inference_mode():
        torch.testing.assert_close(changed.packed(hidden, 2), two(hidden, 2), atol=2e-2, rtol=2e-2)


def test_heads_that_are_more_than_their_weights_are_not_packed(monkeypatch, model):
    monkeypatch.setattr(
        "medusa_core.drafters.medusa.packed.packing_that_wins", lambda linear: Operators.find()
    )
    heads = heads_of(1, shares=False)
    assert isinstance(packed_heads(heads), PackedHeads)
    part = TruncatedHeads(heads.block_weight, heads.block_bias, heads.lm_weight, torch.arange(320), 400)
    assert packed_heads(part) is None
    monkeypatch.setattr("medusa_core.drafters.medusa.packed.PACK_LIMIT", 1000)
    assert packed_heads(heads) is None
    monkeypatch.undo()
    assert packed_heads(tiny.random_heads(model)) is None  # float32
