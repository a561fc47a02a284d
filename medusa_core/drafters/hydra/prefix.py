"""The decoder layer in front of some Hydra heads, which reads the hidden states of the whole text. Paper §4.

One Llama layer and a final norm, shaped as the base's own; its input is not tokens but the target's hidden
states after the final norm. Keys and values of a row depend on that row alone, so rows are only written as
the text grows, and attention runs once a step, for the last row, whose output the heads read.

B texts · T rows · d hidden size · D numbers of an attention head
"""

from __future__ import annotations

from typing import Any

import torch
import transformers  # lazy: parts are imported when they are named
from torch import nn
from torch.nn import functional as F

from medusa_core.errors import MedusaError
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.rotary import rotated, rotations_at

_COPIED = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "hidden_act", "rms_norm_eps", "rope_parameters", "max_position_embeddings", "attention_bias", "mlp_bias",
)  # fmt: skip


class PrefixLayer(nn.Module):
    """A Llama decoder layer and a norm, without weights until ``load_state_dict(..., assign=True)``."""

    def __init__(self, base: Any) -> None:
        """``base``: the base's config for text. Raises MedusaError when no Llama layer has its shape."""
        super().__init__()
        config, llama = _layer_config(base), transformers.models.llama.modeling_llama
        with torch.device("meta"):
            self.layers = nn.ModuleList([llama.LlamaDecoderLayer(config, 0)])
            self.norm = llama.LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        # In a tuple, so that moving the weights to a dtype leaves its angles in float32.
        self._rotary = (llama.LlamaRotaryEmbedding(config),)

    @classmethod
    def fresh(cls, base: Any, like: torch.Tensor) -> PrefixLayer:
        """An untrained layer on the device and in the dtype of ``like``, which at first changes only scales.

        What it adds to its input is zero, so the heads begin with the hidden state after one more norm.
        """
        layer = cls(base)
        layer.to_empty(device=like.device).to(like.dtype)
        for name, parameter in layer.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight", "bias")):
                nn.init.zeros_(parameter)
            elif parameter.ndim == 1:
                nn.init.ones_(parameter)
            else:
                nn.init.normal_(parameter, std=0.02)
        return layer

    @property
    def row_bytes(self) -> int:
        """Bytes of a row's keys and values."""
        projection = self._layer.self_attn.k_proj.weight
        return int(2 * len(projection) * projection.itemsize)

    def read(self, hidden: torch.Tensor, cache: TreeCache) -> None:
        """Write the rows of hidden states [T, d] behind those in ``cache``."""
        layer = self._layer
        normed = layer.input_layernorm(hidden)
        keys = self._turned(self._split(layer.self_attn.k_proj(normed)), cache.length)
        values = self._split(layer.self_attn.v_proj(normed))
        cache.update(keys.transpose(0, 1)[None], values.transpose(0, 1)[None], 0)
        cache.commit(range(len(hidden)))

    def last(self, hidden: torch.Tensor, cache: TreeCache) -> torch.Tensor:
        """The output [d] for the last row in ``cache``, whose hidden state [d] is ``hidden``."""
        layer = self._layer
        queries = self._split(layer.self_attn.q_proj(layer.input_layernorm(hidden[None])))
        queries = self._turned(queries, cache.length - 1).transpose(0, 1)
        held = cache.tree_layers[0]
        keys, values = (rows[:, :, : cache.length] for rows in (held.keys, held.values))
        mixed = F.scaled_dot_product_attention(queries[None], keys, values, enable_gqa=True)
        x = hidden + layer.self_attn.o_proj(mixed.flatten())
        return self.norm(x + layer.mlp(layer.post_attention_layernorm(x)))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The output for every row of whole texts, each row seeing those before it: [B, T, d] → [B, T, d]."""
        positions = torch.arange(hidden.shape[1], device=hidden.device)[None]
        turns = self._rotary[0].to(hidden.device)(hidden, positions)
        return self.norm(self._layer(hidden, position_embeddings=turns))

    @property
    def _layer(self) -> Any:
        return self.layers[0]

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        """[T, heads · D] → [T, heads, D]."""
        return x.view(len(x), -1, self._layer.self_attn.head_dim)

    def _turned(self, x: torch.Tensor, first: int) -> torch.Tensor:
        """Rows [T, heads, D] rotated by their positions, which start at ``first``."""
        positions = torch.arange(first, first + len(x), device=x.device)
        return rotated(x.float(), rotations_at(self._rotary[0].to(x.device), positions)).to(x.dtype)


def _layer_config(base: Any) -> transformers.LlamaConfig:
    """One Llama layer's config from any base's. Raises MedusaError for a base of another kind."""
    known = {name: getattr(base, name) for name in _COPIED if getattr(base, name, None) is not None}
    if "rope_parameters" not in known and hasattr(base, "rope_theta"):  # base read without transformers
        known["rope_parameters"] = {"rope_type": "default", "rope_theta": base.rope_theta}
    if "rope_parameters" not in known or "rms_norm_eps" not in known or "intermediate_size" not in known:
        raise MedusaError(
            f"the prefix layer of these heads is a Llama layer, for which {base.model_type} lacks rotary "
            "positions or an RMS norm: use heads without one (hydra_head_arch mlp)"
        )
    config = transformers.LlamaConfig(**known, num_hidden_layers=1)
    config._attn_implementation = "sdpa"
    return config
