"""A multi-token-prediction layer: its files, its guesses against whole recomputed texts, its refusals."""

from __future__ import annotations

import json
import re

import mtp_files
import pytest
import tiny
import torch
from safetensors.torch import save_file
from torch.nn import functional as F
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from medusa_core.config import GenerationConfig
from medusa_core.drafters import draft_size, load_draft, make_drafter, owner_of
from medusa_core.errors import MedusaError

SETTINGS = {"method": "mtp", "draft_top_k": 1, "draft_depth": 3, "draft_nodes": 3}


@pytest.fixture(scope="module")
def with_layer(engine, tmp_path_factory):
    return mtp_files.with_mtp(engine, tmp_path_factory.mktemp("mtp"))


def slow_chain(model, tensors, text, depth):
    """The guesses behind ``text``, by transformers' own layer over all rows for each of them."""
    config = LlamaConfig(**{**model.config.to_dict(), "num_hidden_layers": 1})
    config._attn_implementation = "eager"
    layer = LlamaDecoderLayer(config, 0)
    own = {name: one for name, one in tensors.items() if name in layer.state_dict()}
    layer.load_state_dict(own)
    rotary = LlamaRotaryEmbedding(config)

    def norm(x, name):
        return F.rms_norm(x, x.shape[-1:], tensors[f"{name}.weight"], config.rms_norm_eps)

    hidden = model.model(torch.tensor([text[:-1]])).last_hidden_state[0]
    found = []
    for _ in range(depth):
        embedded = model.get_input_embeddings()(torch.tensor([*text, *found][1:]))
        x = torch.cat([norm(embedded, "enorm"), norm(hidden, "hnorm")], dim=-1) @ tensors["eh_proj.weight"].T
        # A drafted row stands where its hidden state's token would.
        places = torch.arange(len(x))[None]
        mask = torch.full((len(x), len(x)), float("-inf")).triu(1)[None, None]
        output = layer(x[None], attention_mask=mask, position_embeddings=rotary(x[None], places))
        output = (output[0] if isinstance(output, tuple) else output)[0]
        logits = norm(output[-1], "shared_head.norm") @ model.get_output_embeddings().weight.T
        found.append(int(logits.argmax()))
        hidden = torch.cat([hidden, output[-1:]])
    return found


@torch.no_grad()
def test_its_guesses_are_those_of_whole_recomputed_texts(with_layer):
    tensors = mtp_files.state(with_layer.target.model)
    config = GenerationConfig.of(max_new_tokens=12, **SETTINGS)
    text, steps = list(tiny.PROMPT), 0
    for step in with_layer.stream(tiny.PROMPT, config):
        tokens = step.tree.tokens.tolist()
        if len(tokens) == 4:
            assert tokens[1:] == slow_chain(with_layer.target.model, tensors, [*text, tokens[0]], 3)
            steps += 1
        text += step.emitted
    assert steps > 3


def test_the_published_names_are_recognised_and_read(engine, tmp_path):
    tensors = mtp_files.state(engine.target.model)
    folder = mtp_files.write(tmp_path / "one", tensors)
    assert owner_of(folder) == "mtp"
    draft = load_draft("mtp", folder, engine.target)
    assert draft.label == "MTP layer"
    assert draft.notes == ()
    shared = ("embed_tokens.weight", "shared_head.head.weight")
    numbers = sum(tensor.numel() for name, tensor in tensors.items() if name not in shared)
    assert draft_size(folder, None).weights == numbers == sum(one.numel() for one in draft.tensors())
    row = make_drafter(engine.target, {"mtp": draft}, GenerationConfig.of(**SETTINGS)).cache_bytes_for(1000)
    assert draft_size(folder, None).cache_per_row == pytest.approx(row / 1000 / 4, rel=0.01)


def test_copies_of_other_tensors_and_further_layers_are_told(engine, tmp_path):
    tensors = mtp_files.state(engine.target.model)
    both = {mtp_files.PREFIX + name: tensor for name, tensor in tensors.items()}
    both |= {f"model.layers.3.{name}": tensor.clone() for name, tensor in tensors.items()}
    both[mtp_files.PREFIX + "embed_tokens.weight"] = tensors["embed_tokens.weight"] + 1
    save_file(both, tmp_path / "model.safetensors")
    notes = load_draft("mtp", tmp_path, engine.target).notes
    assert notes == (
        "of 2 MTP layers the first drafts all levels",
        "embed_tokens.weight is not the model's own embedding, which is used",
    )


DAMAGE = {
    "a part is missing": (lambda t: t.pop("hnorm.weight"), "lacks hnorm.weight"),
    "experts": (lambda t: t.update({"mlp.experts.0.up_proj.weight": torch.ones(2)}), "has experts"),
    "latent attention": (
        lambda t: t.update({"self_attn.kv_a_proj_with_mqa.weight": torch.ones(2)}),
        "has multi-head latent attention",
    ),
    "whole numbers": (lambda t: t.update({"enorm.weight": t["enorm.weight"].long()}), "is int64"),
    "numbers of 8 bits": (
        lambda t: t.update({"enorm.weight": t["enorm.weight"].to(torch.float8_e4m3fn)}),
        "is float8_e4m3fn",
    ),
    "another width": (lambda t: t.update({"enorm.weight": torch.ones(7)}), "enorm.weight of the MTP layer"),
    "not a number": (
        lambda t: t["eh_proj.weight"].fill_(float("nan")),
        "holds NaN or infinity: fetch, convert or train it",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_layer_that_does_not_fit_is_refused_with_the_reason(engine, tmp_path, name):
    tensors = mtp_files.state(engine.target.model)
    damage, words = DAMAGE[name]
    damage(tensors)
    with pytest.raises(MedusaError, match=re.escape(words)):
        load_draft("mtp", mtp_files.write(tmp_path, tensors), engine.target)


def test_a_folder_without_such_a_layer_is_none(engine, tmp_path):
    save_file({"model.layers.0.mlp.up_proj.weight": torch.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}), encoding="utf-8")
    assert owner_of(tmp_path) == "draft_model"
