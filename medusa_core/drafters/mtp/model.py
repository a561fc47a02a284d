"""The layer that predicts one token more, with the names that DeepSeek-V3's checkpoint gives its modules.

T rows · V vocabulary · d hidden size
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from medusa_core.drafters.eagle3.model import Attention, DraftModel, LayerParts, Mlp, Norm, SelfAttention
from medusa_core.drafters.eagle3.shape import DraftShape
from medusa_core.model.rotary import Rotations


class _SharedHead(nn.Module):
    """The norm of the layer, in front of the model's LM head."""

    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.norm = Norm(shape.hidden, shape.norm_eps)


class MtpLayer(DraftModel):
    """A draft model that runs as EAGLE-3's do, with other parts and the target's whole vocabulary."""

    def __init__(self, shape: DraftShape, lm_head: torch.Tensor) -> None:
        """``lm_head`` [V, d] is the target's, or the layer's own copy."""
        nn.Module.__init__(self)  # DraftModel's would make EAGLE-3's modules
        self.shape = shape
        self.enorm = Norm(shape.hidden, shape.norm_eps)
        self.hnorm = Norm(shape.hidden, shape.norm_eps)
        self.eh_proj = nn.Linear(2 * shape.hidden, shape.hidden, bias=False)
        self.input_layernorm = Norm(shape.hidden, shape.norm_eps)
        self.self_attn = SelfAttention(shape, shape.hidden)
        self.post_attention_layernorm = Norm(shape.hidden, shape.norm_eps)
        self.mlp = Mlp(shape)
        self.shared_head = _SharedHead(shape)
        self._lm_head = (lm_head,)  # in a tuple, since it is the target's and none of the layer's weights

    @property
    def parts(self) -> LayerParts:
        """Its modules as C reads them, with the target's LM head."""
        norms = None, self.input_layernorm, self.self_attn, self.post_attention_layernorm
        return LayerParts(self.eh_proj, *norms, self.mlp, self.shared_head.norm, self._lm_head[0])

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """The target's last hidden state [T, d] as it is."""
        return features

    def normed(self, embedded: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Embeddings and hidden states [T, d] as ``eh_proj`` joins them, [T, 2 d]."""
        return torch.cat([self.enorm(embedded), self.hnorm(features)], dim=-1)

    def output(
        self, embedded: torch.Tensor, features: torch.Tensor, by: Rotations, attend: Attention
    ) -> torch.Tensor:
        """Embeddings and hidden states [T, d] to the output [T, d], the next row's hidden state."""
        x = self.eh_proj(self.normed(embedded, features))
        x = x + self.self_attn(self.input_layernorm(x), by, attend)
        return x + self.mlp(self.post_attention_layernorm(x))

    def logits(self, output: torch.Tensor) -> torch.Tensor:
        """The output [T, d] to logits [T, V]."""
        return F.linear(self.shared_head.norm(output), self._lm_head[0])

    def target_tokens(self, tokens: torch.Tensor) -> torch.Tensor:
        """Its tokens are the target's."""
        return tokens
