"""Tiny random models of every decoder family that the engine is proven on, built in memory and offline.

A family is a config of transformers with all sizes small. Where it can slide, its window is ``WINDOW``, far
shorter than the texts of the tests, and its layers include both kinds wherever the family mixes them. Token
0 is an ordinary token. Weights are wide enough for peaked distributions, so that greedy texts vary.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import tiny
import torch
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel

WINDOW = 6
CONTEXT = 64
# Parents of two branches deeper than the window, with siblings between them: slot and depth lie far apart.
DEEP_TREE = [-1, 0, 0, 1, 2, 2, 4, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14]
MIXED = ["sliding_attention", "full_attention"]

_SIZES = {
    "vocab_size": tiny.VOCABULARY, "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4,
    "initializer_range": 0.3, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    "tie_word_embeddings": False,
}  # fmt: skip
_LLAMA = {"intermediate_size": 48, "num_key_value_heads": 2, "max_position_embeddings": CONTEXT}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24, "intermediate_size": 48}
_LATENT = _LLAMA | {
    "num_key_value_heads": 4, "head_dim": 4, "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 1,
}  # fmt: skip
_GPT = {"max_position_embeddings": CONTEXT}
_SLIDES = {"sliding_window": WINDOW}
_GEMMA_4 = _SLIDES | {
    "head_dim": 8, "global_head_dim": 8, "layer_types": MIXED, "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": tiny.VOCABULARY,
}  # fmt: skip
_LLAMA_3 = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
SHORT_ROTATION = 40  # positions up to which the short factors hold
_LONG = {
    "original_max_position_embeddings": SHORT_ROTATION,
    "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4,
        "original_max_position_embeddings": SHORT_ROTATION,
    },
}  # fmt: skip
_LONG_MSCALE = {
    **_LONG, "rope_parameters": _LONG["rope_parameters"] | {"short_mscale": 1.0, "long_mscale": 1.2}
}  # fmt: skip
# Positions of pictures have three axes; those of text are the same on each.
_THREE_AXES = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """One config: its model type, what differs from the sizes above, and the kernels it has."""

    model_type: str
    changes: dict[str, Any] = field(default_factory=dict)
    base: dict[str, Any] = field(default_factory=lambda: _LLAMA)
    kernels: tuple[str, ...] = ("sdpa", "eager")

    def config(self) -> PreTrainedConfig:
        """The config; a composite one gets the sizes in its text part."""
        cls = CONFIG_MAPPING[self.model_type]
        sizes = _SIZES | self.base | self.changes
        # Older configs know some of the sizes by other names.
        named = {cls.attribute_map.get(name, name): value for name, value in sizes.items()}
        if "text_config" not in cls.sub_configs:
            return cls(**named)
        parts = {part: _VISION for part in cls.sub_configs if "vision" in part}
        # Both parts have a vocabulary size, and tests may read either.
        whole = {"vocab_size": tiny.VOCABULARY} if self.model_type == "gemma3" else {}
        return cls(text_config=named, **parts, **whole)

    @functools.cached_property
    def text_config(self) -> PreTrainedConfig:
        """The decoder's part, to read from; in a composite config it has another model type."""
        return self.config().get_text_config(decoder=True)


_VISION = {
    "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
    "image_size": 8, "patch_size": 4,
    # The same under other names, and other settings whose defaults are large in some encoders.
    "embed_dim": 8, "depth": 1, "num_heads": 1, "head_dim": 8, "global_head_dim": 8, "num_key_value_heads": 1,
    "out_hidden_size": 32, "spatial_merge_size": 1, "temporal_patch_size": 1, "num_channels": 3,
}  # fmt: skip

FAMILIES: dict[str, Family] = {
    "llama": Family("llama"),
    "llama 3, scaled rotation": Family("llama", {"rope_parameters": _LLAMA_3}),
    "llama, tied, wide heads": Family("llama", {"tie_word_embeddings": True, "head_dim": 16}),
    "mistral": Family("mistral", {"sliding_window": None}),
    "mistral, window": Family("mistral", _SLIDES),
    "ministral": Family("ministral", _SLIDES | {"layer_types": MIXED, "head_dim": 8}),
    "ministral3, window": Family("ministral3", _SLIDES | {"head_dim": 8}),
    "mixtral": Family("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "mixtral, window": Family("mixtral", _SLIDES | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2": Family("qwen2"),
    "qwen2, window": Family("qwen2", _SLIDES | {"use_sliding_window": True, "max_window_layers": 1}),
    "qwen2-moe": Family("qwen2_moe", _EXPERTS | {"num_experts": 4, "shared_expert_intermediate_size": 24}),
    "qwen3": Family("qwen3", {"head_dim": 16}),
    "qwen3, window": Family(
        "qwen3", _SLIDES | {"use_sliding_window": True, "max_window_layers": 1, "head_dim": 8}
    ),
    "qwen3-moe": Family("qwen3_moe", _EXPERTS | {"num_experts": 4, "head_dim": 8}),
    "gemma": Family("gemma", {"head_dim": 8, "initializer_range": 0.2}),
    # transformers has no sdpa kernel for Gemma2 and gpt-oss: capped scores and sinks.
    "gemma2": Family(
        "gemma2",
        _SLIDES | {"head_dim": 8, "layer_types": MIXED, "query_pre_attn_scalar": 8, "initializer_range": 0.2},
        kernels=("eager",),
    ),
    "gemma3": Family(
        "gemma3_text", _SLIDES | {"head_dim": 8, "layer_types": MIXED, "initializer_range": 0.2}
    ),
    "gemma4": Family("gemma4_text", _GEMMA_4),
    "phi": Family("phi"),
    "phi3": Family("phi3"),
    "phi3, window": Family("phi3", _SLIDES),
    "phi3, long rotation": Family("phi3", _LONG),
    "phimoe": Family("phimoe", _SLIDES | {"num_local_experts": 4}),
    "phimoe, long rotation": Family("phimoe", _LONG_MSCALE | {"num_local_experts": 4}),
    "olmo": Family("olmo"),
    "olmo2": Family("olmo2"),
    "olmo3": Family("olmo3", _SLIDES | {"layer_types": MIXED}),
    "olmoe": Family("olmoe", {"num_experts": 4, "num_experts_per_tok": 2}),
    "smollm3": Family("smollm3", {"no_rope_layers": [1, 0]}),
    "smollm3, window": Family("smollm3", _SLIDES | {"use_sliding_window": True, "layer_types": MIXED}),
    "cohere": Family("cohere", {"logit_scale": 0.5}),
    "cohere2": Family("cohere2", _SLIDES | {"layer_types": MIXED, "logit_scale": 0.5, "head_dim": 8}),
    "exaone4": Family("exaone4", _SLIDES | {"layer_types": MIXED}),
    "granite": Family("granite", {"logits_scaling": 4.0, "residual_multiplier": 0.5}),
    "granitemoe": Family("granitemoe", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "starcoder2": Family("starcoder2", _SLIDES),
    "stablelm": Family("stablelm"),
    "nemotron": Family("nemotron"),
    "helium": Family("helium", {"head_dim": 8}),
    "glm": Family("glm", {"head_dim": 8}),
    "glm4": Family("glm4", {"head_dim": 8}),
    "glm4-moe": Family(
        "glm4_moe", _EXPERTS | {"head_dim": 8, "n_routed_experts": 4, "first_k_dense_replace": 1}
    ),
    "arcee": Family("arcee"),
    "ernie4.5": Family("ernie4_5"),
    "hunyuan": Family("hunyuan_v1_dense", {"head_dim": 8}),
    "cwm": Family("cwm", _SLIDES | {"layer_types": MIXED, "head_dim": 8, "bos_token_id": 1}),
    "seed-oss": Family("seed_oss", {"head_dim": 8}),
    "deepseek-v2": Family("deepseek_v2", base=_LATENT),
    "deepseek-v3": Family("deepseek_v3", base=_LATENT),
    "gpt-oss": Family(
        "gpt_oss",
        _SLIDES | {"layer_types": MIXED, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8},
        kernels=("eager",),
    ),
    "gpt2": Family("gpt2", base=_GPT),
    "gpt-bigcode": Family("gpt_bigcode", base=_GPT),
    "gpt-neox": Family("gpt_neox", base=_GPT | {"intermediate_size": 48}),
    "gptj": Family("gptj", {"rotary_dim": 4}, base=_GPT, kernels=("eager",)),
    "codegen": Family("codegen", {"rotary_dim": 4}, base=_GPT, kernels=("eager",)),
    "opt": Family("opt", {"ffn_dim": 48, "word_embed_proj_dim": 32}, base=_GPT),
    "falcon": Family("falcon", base=_GPT),
    # Models that also read pictures or sound: given only text they are the decoder inside.
    "gemma3, multimodal": Family(
        "gemma3", _SLIDES | {"head_dim": 8, "layer_types": MIXED, "initializer_range": 0.2}
    ),
    "gemma4, multimodal": Family("gemma4", _GEMMA_4 | {"pad_token_id": 0}),  # placeholder of pictures
    "llava on llama": Family("llava", {"model_type": "llama"}),
    "llava on mistral, window": Family("llava", _SLIDES | {"model_type": "mistral"}),
    "llava-next": Family("llava_next", {"model_type": "mistral", "sliding_window": None}),
    "llava-onevision": Family("llava_onevision", {"model_type": "qwen2"}),
    "mistral3": Family("mistral3", {"model_type": "mistral", "sliding_window": None, "head_dim": 8}),
    "qwen2-vl": Family("qwen2_vl", _THREE_AXES),
    "qwen2.5-vl": Family("qwen2_5_vl", _THREE_AXES),
    "qwen3-vl": Family("qwen3_vl", _THREE_AXES | {"head_dim": 8}),
    "qwen3-vl-moe": Family("qwen3_vl_moe", _EXPERTS | _THREE_AXES | {"num_experts": 4, "head_dim": 8}),
    "glm4v": Family("glm4v", _THREE_AXES | {"head_dim": 8}),
    "internvl": Family("internvl", {"model_type": "qwen2"}),
    "idefics3": Family("idefics3", {"model_type": "llama"}),
    "smolvlm": Family("smolvlm", {"model_type": "llama"}),
    "aya-vision": Family(
        "aya_vision", _SLIDES | {"model_type": "cohere2", "layer_types": MIXED, "head_dim": 8}
    ),
    "mllama": Family("mllama", {"cross_attention_layers": [1], "num_hidden_layers": 3, "bos_token_id": 1}),
}


@functools.cache
def family_model(name: str, kernel: str | None = None, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The family's model with random weights, built once; ``kernel`` None is the family's first."""
    family = FAMILIES[name]
    with torch.inference_mode(False):  # whatever the mode of the first caller
        return tiny.build_model(family.config(), kernel or family.kernels[0], dtype=dtype)


def slides(name: str) -> bool:
    """Whether the family has layers that see only the window."""
    config = FAMILIES[name].text_config
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"]
    return getattr(config, "sliding_window", None) == WINDOW and "sliding_attention" in kinds


def alone(model: PreTrainedModel, tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The slow version: no cache, no mask of ours; logits [V] and hidden state [d] of the last token."""
    output = model(torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
    return output.logits[0, -1], output.hidden_states[-1][0, -1]
