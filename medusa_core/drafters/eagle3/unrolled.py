"""The draft model over whole windows as training runs it: every row drafts several steps ahead at once.

In step 0 each row reads the target's features; in step i it reads its own output of step i - 1 and the
embedding of the token i places further on, at a position i further on. It then sees the text as step 0 read
it, and of the later steps its own row alone: these are the diagonals of their keys, taken as products of
equal rows. So each row computes what drafting a chain from its place would. EAGLE-3 paper §3.2, figure 6:
the training-time test.

B windows · T tokens of a window · R rows of a step · d hidden size · D head size
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional as F

from medusa_core.drafters.eagle3.model import DraftModel
from medusa_core.model.rotary import RotaryTable


def unrolled_outputs(
    model: DraftModel, rotary: RotaryTable, embedded: torch.Tensor, features: torch.Tensor, steps: int
) -> Iterator[torch.Tensor]:
    """The outputs [B, R, d] of each step, from embeddings [B, T, d] and the target's features [B, T, 3 d].

    Row t of step i guesses token t + 2 + i; R = T - 2 - i, the rows whose token the window holds.
    """
    rows = embedded.shape[1] - 2
    attention = _UnrolledAttention()
    output = model.fuse(features[:, :rows])
    for step in range(min(steps, rows)):
        count = rows - step
        following = embedded[:, 1 + step : 1 + rows]
        by = rotary.at(step, count)
        output = model.output(following, output[:, :count], by, attention)
        yield output


class _UnrolledAttention:
    """Attention of one step after the other, each to the text and to the steps before on its own row."""

    def __init__(self) -> None:
        self._keys: list[torch.Tensor] = []  # of each step, [B, R, H, D]
        self._values: list[torch.Tensor] = []

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Queries [B, R, H, D], keys and values [B, R, G, D] to [B, R, H · D]."""
        rows, group = query.shape[1], query.shape[2] // key.shape[2]
        query = query.to(value.dtype)
        self._keys.append(key.to(value.dtype).repeat_interleave(group, dim=2))
        self._values.append(value.repeat_interleave(group, dim=2))
        keys, values = ([part[:, :rows] for part in parts] for parts in (self._keys, self._values))
        text_keys, text_values = keys[0].transpose(1, 2), values[0].transpose(1, 2)  # [B, H, R, D]
        query = query.transpose(1, 2)
        if len(keys) == 1:
            mixed = F.scaled_dot_product_attention(query, text_keys, text_values, is_causal=True)
            return mixed.transpose(1, 2).flatten(2)
        place = torch.arange(rows, device=query.device)
        scale = query.shape[-1] ** -0.5
        scores = (query @ text_keys.transpose(2, 3)).float() * scale  # [B, H, R, R]
        scores = scores.masked_fill(place > place[:, None], -torch.inf)
        own = [(query * key.transpose(1, 2)).float().sum(dim=-1, keepdim=True) * scale for key in keys[1:]]
        # Softmax over the text and the row's own steps together, without a copy of all scores in one tensor.
        highest = torch.cat([scores.amax(dim=-1, keepdim=True), *own], dim=-1).amax(dim=-1, keepdim=True)
        shares = [(part - highest.detach()).exp() for part in (scores, *own)]
        mixed = shares[0].to(value.dtype) @ text_values
        for share, of_step in zip(shares[1:], values[1:], strict=True):
            mixed = mixed + share * of_step.transpose(1, 2)
        mixed = mixed / torch.stack([share.sum(dim=-1) for share in shares]).sum(dim=0)[..., None]
        return mixed.to(value.dtype).transpose(1, 2).flatten(2)
