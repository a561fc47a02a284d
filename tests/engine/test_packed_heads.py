"""Packed heads give the module's logits for one row, and are made anew for other heads."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny
import torch

from medusa_core.api import load
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.drafters.medusa.build import TruncatedHeads
from medusa_core.drafters.medusa.draft import MedusaDraft
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.drafters.medusa.packed import Int8Linear, PackedHeads, packed_heads
from medusa_core.model.products import Operators

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
@pytest.mark.parametrize("int8", [False, True])
@torch.inference_mode()
def test_packed_heads_say_what_the_module_says(layers, shares, first, int8):
    heads = heads_of(layers, shares)
    hidden = torch.randn(1, 64, generator=torch.Generator().manual_seed(9)).to(torch.bfloat16)
    found, wanted = PackedHeads(heads, Operators.find(), int8=int8)(hidden, first), heads(hidden, first)
    assert found.shape == wanted.shape
    error = (found.float() - wanted.float()).norm() / wanted.float().norm()
    assert error < (0.015 if int8 else 0.005)


@torch.inference_mode()
def test_8_bits_hold_a_weight_to_half_a_step_of_its_row():
    weight = torch.randn(320, 64, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)
    weight[7] = 0  # a row that says nothing
    held = Int8Linear(weight)(torch.eye(64, dtype=torch.bfloat16)).T.float()
    step = weight.float().abs().amax(dim=1, keepdim=True) / 127
    assert ((held - weight.float()).abs() <= 0.51 * step + 2**-8 * weight.float().abs()).all()
    assert not held[7].any()


def test_8_bits_are_taken_for_heads_of_their_own_where_torch_can(monkeypatch):
    assert type(packed_heads(heads_of(1, shares=False))._last[0]) is Int8Linear
    found = packed_heads(heads_of(1, shares=True))
    assert found is None or type(found._last[0]) is not Int8Linear
    monkeypatch.setattr(Int8Linear, "__call__", lambda self, x: torch.ops.aten._no_such_operator(x))
    assert not Int8Linear.runs_here(torch.bfloat16)
    found = packed_heads(heads_of(1, shares=False))
    assert found is None or type(found._last[0]) is not Int8Linear


@torch.inference_mode()
def test_8_bits_change_few_guesses_of_the_embedded_heads():
    embedded_engine = load(dtype="bfloat16", device="cpu")
    draft = medusa_draft(embedded_engine)
    prompt = embedded_engine.encode("Once upon a time there was a small owl who lived in a tall tree.")
    _, states = embedded_engine.target.read(prompt)
    packed, count = packed_heads(draft.heads), draft.heads.count
    same = [
        packed(row[None], count).argmax(-1).eq(draft.heads(row[None], count).argmax(-1)) for row in states
    ]
    assert torch.cat(same).float().mean() > 0.95


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
