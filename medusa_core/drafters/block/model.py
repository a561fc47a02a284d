"""The network of a block drafter, for a step and for whole windows.

The text's keys and values in every layer are made from the target's fused hidden states. A block's rows are
the root and K - 1 masks; they see the text before the root and one another, and row i guesses the token
behind its place.

T tokens of a text · K rows of a block · V vocabulary · d hidden size · H, G query and key heads · D head size
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import nn
from torch.nn import functional as F

from medusa_core.drafters.eagle3 import FEATURES
from medusa_core.drafters.eagle3.model import Attention, Mlp, Norm, SelfAttention
from medusa_core.drafters.eagle3.shape import DraftShape
from medusa_core.model.rotary import RotaryTable, Rotations, rotated


class _Layer(nn.Module):
    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden, shape.norm_eps)
        self.self_attn = SelfAttention(shape, shape.hidden)
        self.post_attention_layernorm = Norm(shape.hidden, shape.norm_eps)
        self.mlp = Mlp(shape)

    def forward(self, x: torch.Tensor, by: Rotations, attend: Attention) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), by, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class BlockModel(nn.Module):
    """Its own weights; embedding and LM head are the target's."""

    def __init__(self, shape: DraftShape, block: int, layers: int, lm_head: torch.Tensor) -> None:
        """``block`` is K, ``lm_head`` [V, d] the target's."""
        super().__init__()
        self.shape, self.block = shape, block
        self.fc = nn.Linear(FEATURES * shape.hidden, shape.hidden, bias=False)
        self.hidden_norm = Norm(shape.hidden, shape.norm_eps)
        self.masks = nn.Parameter(torch.randn(block - 1, shape.hidden))
        self.embedding_norm = Norm(shape.hidden, shape.norm_eps)
        self.join = nn.Linear(2 * shape.hidden, shape.hidden, bias=False)
        self.layers = nn.ModuleList(_Layer(shape) for _ in range(layers))
        self.norm = Norm(shape.hidden, shape.norm_eps)
        self._lm_head = (lm_head,)  # in a tuple, since it is the target's and none of these weights

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """Three hidden states of the target [.., 3 d] as one [.., d]."""
        return self.hidden_norm(self.fc(features))

    def text(self, fused: torch.Tensor, by: Rotations) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Keys and values [.., T, G, D] of each layer from the fused states [.., T, d] of a text."""
        for layer in self.layers:
            attention = cast("_Layer", layer).self_attn
            key, value = (
                product(fused).unflatten(-1, (-1, attention.head_size))
                for product in (attention.k_proj, attention.v_proj)
            )
            yield rotated(key.float(), by).to(value.dtype), value

    def rows(self, root: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """The K rows [.., K, d] of a block behind a text: embedding of its root and last fused state."""
        masks = self.masks.expand(*root.shape[:-1], *self.masks.shape).to(root.dtype)
        embedded = self.embedding_norm(torch.cat([root[..., None, :], masks], dim=-2))
        return self.join(torch.cat([embedded, last[..., None, :].expand_as(embedded)], dim=-1))

    def output(self, x: torch.Tensor, by: Rotations, attends: Sequence[Attention]) -> torch.Tensor:
        """Rows [.., d] to their output [.., d]; they see by ``attends``, one for each layer."""
        for layer, attend in zip(self.layers, attends, strict=True):
            x = layer(x, by, attend)
        return x

    def logits(self, output: torch.Tensor) -> torch.Tensor:
        """The output [.., d] to logits [.., V]."""
        return F.linear(self.norm(output), self._lm_head[0])


def block_outputs(
    model: BlockModel, rotary: RotaryTable, embedded: torch.Tensor, features: torch.Tensor, steps: int
) -> Iterator[torch.Tensor]:
    """The outputs [B, R, d] of each place of all blocks, from embeddings [B, T, d] and features [B, T, 3 d].

    Row t of place i has read the text up to token t and the root t + 1, and guesses token t + 2 + i, as in
    EAGLE-3's ``unrolled_outputs``; R = T - 2 - i.
    """
    count = embedded.shape[1] - 2  # blocks
    fused = model.fuse(features[:, :count])
    x = model.rows(embedded[:, 1 : 1 + count], fused)  # [B, blocks, K, d]
    table = rotary.prepare(count + model.block)
    places = torch.arange(1, 1 + count, device=x.device)[:, None] + torch.arange(model.block, device=x.device)
    by = Rotations(table.cos[places.flatten()], table.sin[places.flatten()])
    attends = [_WindowAttention(model.block, *text) for text in model.text(fused, rotary.at(0, count))]
    output = model.output(x.flatten(1, 2), by, attends).unflatten(1, (count, model.block))
    for step in range(min(steps, count)):
        yield output[:, : count - step, step]


class _WindowAttention:
    """All blocks of a window at once: each sees the text up to its token, and itself."""

    def __init__(self, block: int, key: torch.Tensor, value: torch.Tensor) -> None:
        self._block, self._key, self._value = block, key, value  # [B, blocks, G, D] of the text

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Queries [B, blocks · K, H, D], keys and values [B, blocks · K, G, D] to [B, blocks · K, H · D]."""
        size, count, group = self._block, self._key.shape[1], query.shape[2] // key.shape[2]
        query = query.to(value.dtype).unflatten(2, (-1, group)).unflatten(1, (count, size))
        own_key, own_value = (part.to(value.dtype).unflatten(1, (count, size)) for part in (key, value))
        of_text = torch.einsum("bnkghd,bmgd->bgnhkm", query, self._key.to(value.dtype))
        hidden = torch.ones(count, count, dtype=torch.bool, device=query.device).triu(1)
        of_text = of_text.masked_fill(hidden[:, None, None], -torch.inf)
        own = torch.einsum("bnkghd,bnjgd->bgnhkj", query, own_key)
        scores = torch.cat([of_text, own], dim=-1).float() / query.shape[-1] ** 0.5
        shares = scores.softmax(dim=-1).to(value.dtype)
        mixed = torch.einsum("bgnhkm,bmgd->bnkghd", shares[..., :count], self._value)
        mixed = mixed + torch.einsum("bgnhkj,bnjgd->bnkghd", shares[..., count:], own_value)
        return mixed.flatten(3).flatten(1, 2)
