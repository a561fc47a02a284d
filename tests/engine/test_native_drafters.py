"""Drafters in C beside their modules in torch: heads of Medusa and Hydra, layers of EAGLE-3 and MTP."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import tiny
import torch
from native_case import CONTEXT, VOCABULARY, off, text

from medusa_core.drafters.eagle3.model import DraftModel, rotary_table
from medusa_core.drafters.eagle3.network import NativeNetwork, Network
from medusa_core.drafters.eagle3.shape import DraftShape
from medusa_core.drafters.hydra.draft import NativeLinear, in_c
from medusa_core.drafters.hydra.heads import HydraHeads
from medusa_core.drafters.medusa.draft import native_heads
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.drafters.mtp.drafter import NativeMtpNetwork
from medusa_core.drafters.mtp.model import MtpLayer
from medusa_core.model.kv_cache import TreeCache


@pytest.mark.sample
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("blocks", [1, 2])
@torch.inference_mode()
def test_heads_say_what_the_module_says(blocks, dtype, shared, llama_library):
    torch.manual_seed(0)
    heads = MedusaHeads(
        (torch.randn(3, blocks, 64, 64) / 8).to(dtype),
        torch.randn(3, blocks, 64).to(dtype),
        torch.randn(*([] if shared else [3]), VOCABULARY, 64).to(dtype),
    )
    fast = native_heads(heads, llama_library)
    assert fast.last_itemsize == (4 if dtype == torch.float32 else 2 if shared else 1)
    for rows in (1, 2, 4, 21):
        hidden = torch.randn(rows, 64).to(dtype)
        for first in (1, 3):
            wanted = copy.deepcopy(heads).float()(hidden.float(), first).log_softmax(-1)
            tokens, logp = fast.best(hidden, first, VOCABULARY)
            assert tokens.sort().values.equal(torch.arange(VOCABULARY).expand(first, rows, -1))
            assert logp.diff().le(0).all()
            assert off(logp, wanted.gather(-1, tokens)) < (1e-5 if dtype == torch.float32 else 0.02)
            fewer = fast.best(hidden, first, 7)
            assert fewer[0].equal(tokens[..., :7])
            assert fewer[1].equal(logp[..., :7])
    assert native_heads(copy.deepcopy(heads).half(), llama_library) is None


SHAPE = DraftShape(
    hidden=64, intermediate=96, heads=4, key_heads=2, head_size=16, vocabulary=VOCABULARY,
    draft_vocabulary=48, norm_eps=1e-5, context=CONTEXT, layers=(0, 1, 2),
)  # fmt: skip


def random_weights(model, dtype):
    torch.manual_seed(0)
    for parameter in model.parameters():
        parameter.data = (torch.randn_like(parameter) / parameter.shape[-1] ** 0.5).to(dtype)
    return model


def compare(networks, shape, features, dtype):
    """A text that is read, and two levels of three nodes behind it, by each network."""
    rotary = rotary_table(shape, torch.device("cpu"))
    found = []
    for network in networks:
        cache = network.new_cache()
        cache.reserve(80)
        fused = network.fuse(features)
        seen = torch.ones(60, 60, dtype=torch.bool).tril()
        read = network(torch.tensor(text(60)), fused, rotary.at(0, 60), cache, seen, 1)
        cache.commit(range(60))
        # Two levels of three nodes at one position each; those of the second see one of the first.
        first = network(
            torch.tensor([1, 2, 3]), read[0][-1:].expand(3, -1), rotary.at(60, 1), cache, torch.eye(3).bool(),
            3,
        )  # fmt: skip
        cache.commit(range(3))
        seen = torch.cat([torch.eye(3)[[0, 0, 2]], torch.eye(3)], dim=1).bool()
        second = network(torch.tensor([4, 5, 6]), first[0][[0, 0, 2]], rotary.at(61, 1), cache, seen, 3)
        found.append([fused, *read, *first, *second])
    for mine, theirs in zip(*found, strict=True):
        assert mine.shape == theirs.shape
        assert off(theirs, mine) < (1e-4 if dtype == torch.float32 else 0.03)


@pytest.mark.sample
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(
    "flags",
    [(), ("norm_before_fc",), ("fc_norm",), ("norm_before_residual",), ("norm_output",),
     ("norm_before_residual", "fc_norm", "norm_output")],
)  # fmt: skip
@torch.inference_mode()
def test_an_eagle3_layer_says_what_its_modules_say(flags, dtype, library):
    shape = replace(SHAPE, **dict.fromkeys(flags, True))
    model, embedding = random_weights(DraftModel(shape), dtype), torch.randn(VOCABULARY, 64).to(dtype)
    networks = Network(model, embedding), NativeNetwork(model, embedding, library)
    compare(networks, shape, torch.randn(60, 192).to(dtype), dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@torch.inference_mode()
def test_an_mtp_layer_says_what_its_modules_say(dtype, library):
    embedding, head = torch.randn(2, VOCABULARY, 64).to(dtype)
    model = random_weights(MtpLayer(SHAPE, head), dtype)
    networks = Network(model, embedding), NativeMtpNetwork(model, embedding, library)
    compare(networks, SHAPE, torch.randn(60, 64).to(dtype), dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@torch.inference_mode()
def test_hydra_heads_say_what_their_modules_say(dtype, library):
    torch.manual_seed(0)
    base = tiny.tiny_config(2, vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, head_dim=16)
    heads = HydraHeads.fresh(torch.randn(VOCABULARY, 64), 3, layers=3, prefix=base)
    for parameter in heads.parameters():
        parameter.data = (torch.randn_like(parameter) / parameter.shape[-1] ** 0.5).to(dtype)
    fast = in_c(heads, library)
    linear = [layer for layer in fast.modules() if isinstance(layer, torch.nn.Linear)]
    assert {type(layer) for layer in linear} == {NativeLinear}
    assert {id(one) for one in fast.parameters()} == {id(one) for one in heads.parameters()}
    found = []
    for each in (heads, fast):
        cache = TreeCache(1, 20)
        rows = torch.randn(20, 64, generator=torch.Generator().manual_seed(1)).to(dtype)
        each.prefix.read(rows, cache)
        state = each.prefix.last(rows[-1], cache)
        paths = [torch.cat([state, *[row.roll(head) for row in rows[: head + 1]]])[None] for head in range(3)]
        found.append(
            [
                cache.tree_layers[0].keys[:, :, :20],
                cache.tree_layers[0].values[:, :, :20],
                state,
                *(each(head, path.expand(4, -1)) for head, path in enumerate(paths)),
            ]
        )
    for mine, theirs in zip(*found, strict=True):
        assert off(mine, theirs) < (1e-5 if dtype == torch.float32 else 0.03)
    assert in_c(copy.deepcopy(heads).half(), library).head(0).linear.__class__ is torch.nn.Linear
