"""Tiny random multi-token-prediction layers, named as in DeepSeek-V3's checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace

import torch
from safetensors.torch import save_file

from medusa_core.drafters.mtp.drafter import MtpDraft, load

PREFIX = "model.layers.2."  # the layer after the two of a tiny model


def state(model, seed=0) -> dict[str, torch.Tensor]:
    """Random tensors of a layer for ``model``, a small Llama."""
    config = model.config
    d, inner = config.hidden_size, config.intermediate_size
    size = config.head_dim or d // config.num_attention_heads
    query, key = size * config.num_attention_heads, size * config.num_key_value_heads
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(*shape, generator=generator) / shape[-1] ** 0.5

    norms = ("enorm", "hnorm", "input_layernorm", "post_attention_layernorm", "shared_head.norm")
    return {
        **{f"{name}.weight": 1 + 0.1 * random(d) for name in norms},
        "eh_proj.weight": random(d, 2 * d),
        "self_attn.q_proj.weight": random(query, d),
        "self_attn.k_proj.weight": random(key, d),
        "self_attn.v_proj.weight": random(key, d),
        "self_attn.o_proj.weight": random(d, query),
        "mlp.gate_proj.weight": random(inner, d),
        "mlp.up_proj.weight": random(inner, d),
        "mlp.down_proj.weight": random(d, inner),
        "embed_tokens.weight": model.get_input_embeddings().weight.detach().clone(),
        "shared_head.head.weight": model.get_output_embeddings().weight.detach().clone(),
    }


def write(folder, tensors, prefix=PREFIX):
    """The folder with the layer and a tensor of the model itself."""
    folder.mkdir(parents=True, exist_ok=True)
    named = {prefix + name: tensor.contiguous() for name, tensor in tensors.items()}
    said = {"model_type": "deepseek_v3", "num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps(said), encoding="utf-8")
    save_file({**named, "model.layers.0.input_layernorm.weight": torch.ones(4)}, folder / "model.safetensors")
    return folder


def mtp_draft(target, folder) -> MtpDraft:
    """A random layer, through its files."""
    return load(write(folder, state(target.model)), target)


def with_mtp(engine, folder):
    """The engine with such a layer in addition to its other drafters."""
    return replace(engine, drafts={**engine.drafts, "mtp": mtp_draft(engine.target, folder)})
