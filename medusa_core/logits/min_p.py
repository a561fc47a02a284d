"""min-p: tokens that are far less likely than the likeliest one are never drawn (arXiv 2407.01082)."""

from __future__ import annotations

import math

import torch


def without_unlikely(
    logits: torch.Tensor, temperature: float, min_p: float, *, in_place: bool = False
) -> torch.Tensor:
    """Logits [..., V] with −∞ where softmax(logits / T) is below ``min_p`` times its largest value.

    ``temperature`` and ``min_p`` are above 0.
    """
    # p / pmax = exp((l − lmax) / T), so that no softmax is needed. In float32, since a sum of two numbers of
    # fewer digits could miss the bound.
    lowest = logits.amax(dim=-1, keepdim=True).float() + temperature * math.log(min_p)
    unlikely = logits < lowest
    return logits.masked_fill_(unlikely, -math.inf) if in_place else logits.masked_fill(unlikely, -math.inf)
