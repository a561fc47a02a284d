"""A Llama out of its folder without transformers, whose import takes longer than reading a small model.

Taken is only what leaves nothing to judge: each setting in config.json is known here and of its usual kind,
each tensor that they ask for is there in its shape, and no other one. What differs in anything, damaged files
among it, is left to transformers and to ``base``, which says what is wrong.

V vocabulary · d hidden size · H query heads · G key-value heads · D head size · m inner size of the MLP
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from safetensors import safe_open

from medusa_core.checkpoints.files import read_config, read_json, shards
from medusa_core.checkpoints.names import ADAPTER_CONFIG, GENERATION_NAME, INDEX_NAME, WEIGHTS_NAME
from medusa_core.errors import MedusaError

_MOST_LAYERS = 1000
_FLOATS = ("F32", "F16", "BF16")  # as safetensors names them
_DTYPES = ("float32", "float16", "bfloat16")

Shapes = dict[str, tuple[int, ...]]


@dataclass
class PlainLlamaConfig:
    """The settings of a Llama, under the names that transformers' configs have."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool  # an adapter of the LM head ends it
    attention_bias: bool
    mlp_bias: bool
    eos_token_id: int | list[int] | None  # from the generation config where there is one
    model_type: ClassVar[str] = "llama"
    _attn_implementation: ClassVar[str] = "sdpa"

    def layer_shapes(self) -> Shapes:
        """Shapes of the tensors of one layer, by their names in it."""
        width, inner = self.hidden_size, self.intermediate_size
        queries, keys = self.num_attention_heads * self.head_dim, self.num_key_value_heads * self.head_dim
        products = {
            "self_attn.q_proj": ((queries, width), self.attention_bias),
            "self_attn.k_proj": ((keys, width), self.attention_bias),
            "self_attn.v_proj": ((keys, width), self.attention_bias),
            "self_attn.o_proj": ((width, queries), self.attention_bias),
            "mlp.gate_proj": ((inner, width), self.mlp_bias),
            "mlp.up_proj": ((inner, width), self.mlp_bias),
            "mlp.down_proj": ((width, inner), self.mlp_bias),
        }
        found: Shapes = {"input_layernorm.weight": (width,), "post_attention_layernorm.weight": (width,)}
        for name, (shape, bias) in products.items():
            found[f"{name}.weight"] = shape
            if bias:
                found[f"{name}.bias"] = shape[:1]
        return found

    def shapes(self) -> Shapes:
        """Shapes of all tensors by name; an LM head that is the embedding is not listed a second time."""
        table = (self.vocab_size, self.hidden_size)
        found: Shapes = {"model.embed_tokens.weight": table, "model.norm.weight": table[1:]}
        if not self.tie_word_embeddings:
            found["lm_head.weight"] = table
        layer = self.layer_shapes()
        for number in range(self.num_hidden_layers):
            found |= {f"model.layers.{number}.{name}": shape for name, shape in layer.items()}
        return found


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_token(value: Any) -> bool:
    return value is None or (type(value) is int and value >= 0)


def _is_end(value: Any) -> bool:
    return _is_token(value) or (isinstance(value, list) and all(type(end) is int for end in value))


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and value > 0


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_dtype(value: Any) -> bool:
    return value in _DTYPES


_NEEDED: dict[str, Callable[[Any], bool]] = {
    "hidden_act": lambda value: value == "silu",
    "hidden_size": _is_count,
    "intermediate_size": _is_count,
    "max_position_embeddings": _is_count,
    "model_type": lambda value: value == "llama",
    "num_attention_heads": _is_count,
    "num_hidden_layers": lambda value: _is_count(value) and value <= _MOST_LAYERS,
    "num_key_value_heads": _is_count,
    "rms_norm_eps": _is_positive,
    "tie_word_embeddings": _is_flag,
    "vocab_size": _is_count,
}
# Those below "rope_theta" change nothing in a forward.
_KNOWN: dict[str, Callable[[Any], bool]] = _NEEDED | {
    "architectures": lambda value: value == ["LlamaForCausalLM"],
    "attention_bias": _is_flag,
    "eos_token_id": _is_end,
    "head_dim": _is_count,
    "mlp_bias": _is_flag,
    "rope_parameters": lambda value: (
        isinstance(value, dict)
        and value.keys() == {"rope_theta", "rope_type"}
        and value["rope_type"] == "default"
        and _is_positive(value["rope_theta"])
    ),
    "rope_scaling": lambda value: value is None,
    "rope_theta": _is_positive,
    "_name_or_path": _is_text,
    "attention_dropout": _is_share,
    "bos_token_id": _is_token,
    "dtype": _is_dtype,
    "initializer_range": _is_share,
    "pad_token_id": _is_token,
    "pretraining_tp": _is_count,
    "torch_dtype": _is_dtype,
    "transformers_version": _is_text,
    "use_cache": _is_flag,
}
_GENERATION: dict[str, Callable[[Any], bool]] = {
    "_from_model_config": _is_flag,
    "bos_token_id": _is_token,
    "do_sample": _is_flag,
    "eos_token_id": _is_end,
    "output_attentions": _is_flag,
    "output_hidden_states": _is_flag,
    "pad_token_id": _is_token,
    "temperature": _is_positive,
    "top_p": _is_share,
    "transformers_version": _is_text,
    "use_cache": _is_flag,
}


def plain_llama_config(folder: Path) -> PlainLlamaConfig | None:
    """The settings of the Llama in ``folder``; None for what transformers is to read or to refuse."""
    try:
        said = read_config(folder)
        generation = folder / GENERATION_NAME
        ending = read_json(generation) if generation.is_file() else None
    except MedusaError:
        return None
    if not _is_plain(said, _KNOWN) or not said.keys() >= _NEEDED.keys():
        return None
    if ending is not None and not _is_plain(ending, _GENERATION):
        return None
    # Written by version 5 of transformers as a dictionary, before it as a number.
    places = {"rope_parameters", "rope_theta"} & said.keys()
    heads, width = said["num_attention_heads"], said["hidden_size"]
    if len(places) != 1 or width % heads or heads % said["num_key_value_heads"]:
        return None
    theta = said["rope_theta"] if places == {"rope_theta"} else said["rope_parameters"]["rope_theta"]
    size = said.get("head_dim", width // heads)
    if size % 2:
        return None
    return PlainLlamaConfig(
        vocab_size=said["vocab_size"],
        hidden_size=width,
        intermediate_size=said["intermediate_size"],
        num_hidden_layers=said["num_hidden_layers"],
        num_attention_heads=heads,
        num_key_value_heads=said["num_key_value_heads"],
        head_dim=size,
        max_position_embeddings=said["max_position_embeddings"],
        rms_norm_eps=said["rms_norm_eps"],
        rope_theta=theta,
        tie_word_embeddings=said["tie_word_embeddings"],
        attention_bias=said.get("attention_bias", False),
        mlp_bias=said.get("mlp_bias", False),
        eos_token_id=(said if ending is None else ending).get("eos_token_id"),
    )


def _is_plain(said: Mapping[str, Any], known: Mapping[str, Callable[[Any], bool]]) -> bool:
    return all(name in known and known[name](value) for name, value in said.items())


def plain_llama_files(folder: Path, config: PlainLlamaConfig) -> dict[str, Path] | None:
    """In which file each tensor lies; None unless they are those of ``config`` and no others.

    Reads headers alone.
    """
    whole = any((folder / name).is_file() for name in (WEIGHTS_NAME, INDEX_NAME))
    if not whole or (folder / ADAPTER_CONFIG).is_file():  # transformers would apply the adapter
        return None
    shapes = config.shapes()
    found: dict[str, Path] = {}
    try:
        for file in shards(folder, WEIGHTS_NAME, lambda _: True):
            with safe_open(file, framework="pt") as opened:
                if (opened.metadata() or {}).get("format") != "pt":
                    return None
                for name in opened.keys():  # noqa: SIM118
                    part = opened.get_slice(name)
                    fits = tuple(part.get_shape()) == shapes.get(name) and part.get_dtype() in _FLOATS
                    if not fits or name in found:
                        return None
                    found[name] = file
    except Exception:  # MedusaError, safetensors' own, the system's: what it is, ``check_weights`` says
        return None
    return found if found.keys() == shapes.keys() else None
