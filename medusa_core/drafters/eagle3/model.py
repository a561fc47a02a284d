"""EAGLE-3's draft model: three hidden states become one, and one decoder layer goes on from it.

Row t reads the fused features of token t and the embedding of token t + 1, at position t, and guesses token
t + 2. Where the target has not read token t yet, the layer's own output stands for its features. The names of
the modules are those of the public checkpoints. EAGLE-3 paper §3.1.

T rows · V vocabulary · V' draft vocabulary · d hidden size · H query heads · G key-value heads · D head size
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import transformers  # lazy: parts are imported when they are named
from torch import nn
from torch.nn import functional as F

from medusa_core.drafters.eagle3 import FEATURES
from medusa_core.drafters.eagle3.shape import DraftShape
from medusa_core.errors import MedusaError, reason_of
from medusa_core.model.bare_llama import PlainRotary
from medusa_core.model.rotary import RotaryTable, Rotations, rotated

# Rotated queries [T, H, D] and keys [T, G, D], and values [T, G, D] → what each row reads, [T, H · D].
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
# Writes keys and values [1, G, T, D] and returns all [1, G, S, D] that may be seen.
Write = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
_LEAST_POSITIONS = 64  # least size of a table of rotations


def attention_by(write: Write, visible: torch.Tensor | None = None) -> Attention:
    """The attention of rows that see what ``write`` returns, or of it what is ``visible`` [T, S]."""

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        keys, values = write(key.transpose(0, 1)[None], value.transpose(0, 1)[None])
        mixed = F.scaled_dot_product_attention(
            query.transpose(0, 1)[None], keys, values, visible, enable_gqa=True
        )
        return mixed[0].transpose(0, 1).flatten(1)

    return attend


class SelfAttention(nn.Module):
    """Attention of a Llama layer whose input has ``width`` numbers a row."""

    def __init__(self, shape: DraftShape, width: int) -> None:
        super().__init__()
        query, key = shape.heads * shape.head_size, shape.key_heads * shape.head_size
        self.head_size = shape.head_size
        self.q_proj = nn.Linear(width, query, bias=False)
        self.k_proj = nn.Linear(width, key, bias=False)
        self.v_proj = nn.Linear(width, key, bias=False)
        self.o_proj = nn.Linear(query, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor, by: Rotations, attend: Attention) -> torch.Tensor:
        """Rows [T, width] to [T, d]."""
        query, key, value = (
            product(x).unflatten(-1, (-1, self.head_size))
            for product in (self.q_proj, self.k_proj, self.v_proj)
        )
        # Angles of far positions need more digits than half precision has.
        query, key = (rotated(part.float(), by).to(x.dtype) for part in (query, key))
        return self.o_proj(attend(query, key, value))


class Mlp(nn.Module):
    """The gated product of a Llama layer."""

    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows [T, d] to [T, d]."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Norm(nn.RMSNorm):
    """RMSNorm with its weight in the input's dtype: under autocast they differ, and torch lacks a kernel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class LayerParts(NamedTuple):
    """The modules of a draft model that the forward in C reads, whatever they are called in its files."""

    joined: nn.Linear  # makes one hidden state of several, in front of the layer
    of_embedding: Norm | None  # of an embedding that attention reads in front of the hidden state
    before_attention: Norm
    attention: SelfAttention
    before_mlp: Norm
    mlp: Mlp
    last_norm: Norm
    lm_head: torch.Tensor  # [V', d]


class _DecoderLayer(nn.Module):
    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden, shape.norm_eps)
        self.hidden_norm = Norm(shape.hidden, shape.norm_eps)
        self.post_attention_layernorm = Norm(shape.hidden, shape.norm_eps)
        self.self_attn = SelfAttention(shape, 2 * shape.hidden)
        self.mlp = Mlp(shape)
        self._norm_before_residual = shape.norm_before_residual

    def forward(
        self, embedded: torch.Tensor, features: torch.Tensor, by: Rotations, attend: Attention
    ) -> torch.Tensor:
        """Embeddings and features [T, d] to the output [T, d]."""
        normed = self.hidden_norm(features)
        x = torch.cat([self.input_layernorm(embedded), normed], dim=-1)
        x = (normed if self._norm_before_residual else features) + self.self_attn(x, by, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class DraftModel(nn.Module):
    """The network, with the maps between its vocabulary and the target's."""

    d2t: torch.Tensor  # [V'], what is added to the number of a draft token to get the target's
    t2d: torch.Tensor  # bool [V], the tokens that it knows

    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.shape = shape
        if shape.norm_before_fc:
            self.input_norm = Norm(FEATURES * shape.hidden, shape.norm_eps)
        if shape.fc_norm:
            self.fc_norm = nn.ModuleList(Norm(shape.hidden, shape.norm_eps) for _ in range(FEATURES))
        self.fc = nn.Linear(FEATURES * shape.hidden, shape.hidden, bias=False)
        self.midlayer = _DecoderLayer(shape)
        self.norm = Norm(shape.hidden, shape.norm_eps)
        self.lm_head = nn.Linear(shape.hidden, shape.draft_vocabulary, bias=False)
        self.register_buffer("d2t", torch.zeros(shape.draft_vocabulary, dtype=torch.long))
        self.register_buffer("t2d", torch.ones(shape.vocabulary, dtype=torch.bool))

    @property
    def parts(self) -> LayerParts:
        """Its modules as C reads them."""
        layer = self.midlayer
        norms = layer.input_layernorm, layer.hidden_norm, layer.self_attn, layer.post_attention_layernorm
        return LayerParts(self.fc, *norms, layer.mlp, self.norm, self.lm_head.weight)

    def normed_features(self, features: torch.Tensor) -> torch.Tensor:
        """Three hidden states of the target [T, 3 d] as ``fc`` takes them."""
        if self.shape.norm_before_fc:
            features = self.input_norm(features)
        if self.shape.fc_norm:
            parts = features.chunk(FEATURES, dim=-1)
            features = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        return features

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """Three hidden states of the target [T, 3 d] as one [T, d]."""
        return self.fc(self.normed_features(features))

    def output(
        self, embedded: torch.Tensor, features: torch.Tensor, by: Rotations, attend: Attention
    ) -> torch.Tensor:
        """Embeddings and features [T, d] to the output [T, d], which may be the features of the next row."""
        output = self.midlayer(embedded, features, by, attend)
        return self.norm(output) if self.shape.norm_output else output

    def logits(self, output: torch.Tensor) -> torch.Tensor:
        """The output [T, d] to logits over the draft vocabulary [T, V']."""
        return self.lm_head(output if self.shape.norm_output else self.norm(output))

    def target_tokens(self, tokens: torch.Tensor) -> torch.Tensor:
        """Draft tokens as tokens of the target."""
        return tokens + self.d2t[tokens]


def rotary_table(shape: DraftShape, device: torch.device) -> RotaryTable:
    """The rotations of a draft model. Raises MedusaError for a scaling that is not known."""
    return RotaryTable(_rotary(shape), device, _LEAST_POSITIONS)


def _rotary(shape: DraftShape) -> nn.Module:
    """Turns positions into angles."""
    if shape.rope_scaling is None:
        return PlainRotary(shape.rope_theta, shape.head_size)
    llama = transformers.models.llama
    try:
        return llama.modeling_llama.LlamaRotaryEmbedding(
            transformers.LlamaConfig(
                hidden_size=shape.hidden,
                num_attention_heads=shape.heads,
                head_dim=shape.head_size,
                max_position_embeddings=shape.context,
                rope_parameters={"rope_theta": shape.rope_theta, **shape.rope_scaling},
            )
        )
    except Exception as error:  # a wrong value among its settings can raise anything
        raise MedusaError(
            f"the scaling of positions {shape.rope_scaling} cannot be used ({reason_of(error)}): "
            "correct it in config.json"
        ) from error
