"""The config of a Llama without transformers, whose import takes longer than reading a small model.

It reads a config.json only if every setting is known here and has its usual kind. Any other is left to
transformers and to ``base``, which says what is wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, ValidationError

from medusa_core.checkpoints.files import read_config, read_json
from medusa_core.checkpoints.names import GENERATION_NAME
from medusa_core.errors import MedusaError

MOST_LAYERS = 1000
_Size = Annotated[int, Field(ge=1, le=2**24)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Token = Annotated[int, Field(ge=0)] | None
_Ends = _Token | list[int]
_Dtype = Literal["float32", "float16", "bfloat16"]


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())


class PlainLlamaConfig(_Settings):
    """The settings of a Llama, under the names that transformers' configs have."""

    model_type: Literal["llama"]
    vocab_size: _Size
    hidden_size: _Size
    hidden_act: Literal["silu"]
    intermediate_size: _Size
    num_hidden_layers: Annotated[int, Field(ge=1, le=MOST_LAYERS)]
    num_attention_heads: _Size
    num_key_value_heads: _Size
    max_position_embeddings: _Size
    rms_norm_eps: PositiveFloat
    rope_theta: PositiveFloat
    tie_word_embeddings: bool  # an adapter of the LM head ends it
    head_dim: _Size = 0  # where none is named, the heads share the width
    attention_bias: bool = False
    mlp_bias: bool = False
    eos_token_id: _Ends = None  # from the generation config where there is one
    # These change nothing in a forward.
    architectures: list[Literal["LlamaForCausalLM"]] = []
    rope_scaling: None = None
    attention_dropout: _Share = 0.0
    bos_token_id: _Token = None
    dtype: _Dtype = "float32"
    torch_dtype: _Dtype = "float32"
    initializer_range: _Share = 0.0
    pad_token_id: _Token = None
    pretraining_tp: _Size = 1
    transformers_version: str = ""
    use_cache: bool = True
    name_or_path: str = Field("", alias="_name_or_path")
    _attn_implementation: ClassVar[str] = "sdpa"

    def get_text_config(self, *, decoder: bool) -> PlainLlamaConfig:
        """Itself: nothing but text is read."""
        return self


class _Generation(_Settings):
    bos_token_id: _Token = None
    do_sample: bool = False
    eos_token_id: _Ends = None
    from_model_config: bool = Field(default=False, alias="_from_model_config")
    output_attentions: bool = False
    output_hidden_states: bool = False
    pad_token_id: _Token = None
    temperature: PositiveFloat = 1.0
    top_p: _Share = 1.0
    transformers_version: str = ""
    use_cache: bool = True


def plain_llama_config(folder: Path) -> PlainLlamaConfig | None:
    """The settings of the Llama in ``folder``; None for what transformers is to read or to refuse."""
    try:
        raw = read_config(folder)
        rope = raw.get("rope_parameters")  # since transformers 5; before, theta stood alone
        if isinstance(rope, dict) and rope == {"rope_type": "default", "rope_theta": rope.get("rope_theta")}:
            if "rope_theta" in raw:
                return None
            raw["rope_theta"] = raw.pop("rope_parameters")["rope_theta"]
        config = PlainLlamaConfig.model_validate(raw)
        generation = folder / GENERATION_NAME
        if generation.is_file():
            config.eos_token_id = _Generation.model_validate(read_json(generation)).eos_token_id
    except (MedusaError, ValidationError):
        return None
    heads = config.num_attention_heads
    config.head_dim = config.head_dim or config.hidden_size // heads
    uneven = config.hidden_size % heads or heads % config.num_key_value_heads or config.head_dim % 2
    return None if uneven else config
