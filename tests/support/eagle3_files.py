"""Tiny random EAGLE-3 draft models, in memory and as the public folders, written by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import tiny
import torch
from safetensors.torch import save_file

from medusa_core.drafters.eagle3.draft import Eagle3Draft, build, target_embedding
from medusa_core.drafters.eagle3.shape import DraftShape

LAYERS = [0, 1, 2]  # a tiny model has two layers, so the public rule for the features does not name three
KNOWN = [0, 2, 3, 4, 5, 7, 9, 11, 12, 14, 16, 17, 18, 20, 22, 23]  # some of the 24 tokens of a tiny model


def config(known=KNOWN, **changes):
    """The config.json of a draft model for the tiny models; None leaves a key out."""
    said = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 32,
        "intermediate_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1,
        "rms_norm_eps": 1e-5, "rope_theta": 5000.0, "vocab_size": tiny.VOCABULARY,
        "draft_vocab_size": len(known), "eagle_aux_hidden_state_layer_ids": LAYERS,
    }  # fmt: skip
    return {key: value for key, value in (said | changes).items() if value is not None}


def speculators(**changes):
    """The same sizes as speculators writes them: the layer's separate from the rest."""
    layer = config() | {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}
    rest = {"draft_vocab_size", "eagle_aux_hidden_state_layer_ids", "architectures"}
    said = {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "a-base"}},
        "draft_vocab_size": len(KNOWN),
        "eagle_aux_hidden_state_layer_ids": LAYERS,
        "norm_before_residual": False,
        "target_hidden_size": None,
        "transformer_layer_config": {key: value for key, value in layer.items() if key not in rest},
    }
    return said | changes


def numbered(tensors):
    """The layer's tensors by the names of vLLM and speculators."""
    return {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}


def state(known=KNOWN, seed=0, d=32, inner=40, key=16, vocabulary=tiny.VOCABULARY):
    """Random tensors under the public names; ``known`` are the tokens of the draft vocabulary."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(*shape, generator=generator) / shape[-1] ** 0.5

    return {
        "fc.weight": random(d, 3 * d),
        "midlayer.input_layernorm.weight": 1 + 0.1 * random(d),
        "midlayer.hidden_norm.weight": 1 + 0.1 * random(d),
        "midlayer.post_attention_layernorm.weight": 1 + 0.1 * random(d),
        "midlayer.self_attn.q_proj.weight": 2 * random(d, 2 * d),
        "midlayer.self_attn.k_proj.weight": 2 * random(key, 2 * d),
        "midlayer.self_attn.v_proj.weight": random(key, 2 * d),
        "midlayer.self_attn.o_proj.weight": random(d, d),
        "midlayer.mlp.gate_proj.weight": random(inner, d),
        "midlayer.mlp.up_proj.weight": random(inner, d),
        "midlayer.mlp.down_proj.weight": random(d, inner),
        "norm.weight": 1 + 0.1 * random(d),
        "lm_head.weight": 2 * random(len(known), d),
        "d2t": torch.tensor(known) - torch.arange(len(known)),
        "t2d": torch.isin(torch.arange(vocabulary), torch.tensor(known)),
    }


def write(folder, tensors, said, kind="safetensors"):
    """A folder in the public layout."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(said), encoding="utf-8")
    if kind == "safetensors":
        save_file(tensors, folder / "model.safetensors")
    else:
        torch.save(tensors, folder / "pytorch_model.bin")
    return folder


def norms(flags, d=32, seed=1):
    """The tensors that flags of a config ask for, by name."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {"input_norm.weight": 3 * d} if "norm_before_fc" in flags else {}
    sizes |= {f"fc_norm.{place}.weight": d for place in range(3)} if "fc_norm" in flags else {}
    return {name: 1 + 0.5 * torch.randn(size, generator=generator) for name, size in sizes.items()}


def draft_for(target, known=KNOWN, seed=0, flags=()) -> Eagle3Draft:
    """A draft model for a tiny target."""
    shape = DraftShape.of(config(known, **dict.fromkeys(flags, True)))
    return build(shape, state(known, seed) | norms(flags), target, target_embedding(target))


def with_draft(engine, **settings):
    """The engine with such a draft model in addition to its other drafters."""
    return replace(engine, drafts={**engine.drafts, "eagle3": draft_for(engine.target, **settings)})
