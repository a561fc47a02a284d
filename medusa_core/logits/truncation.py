"""Top-k, top-p and min-p: only the likeliest tokens may be drawn.

Top-k (Fan et al., 2018, arXiv 1805.04833) keeps the k likeliest; top-p, nucleus sampling (Holtzman et al.,
2020, arXiv 1904.09751), the fewest whose p sum to at least p. The bounds are those of transformers'
``TopKLogitsWarper`` and ``TopPLogitsWarper``. With min-p (arXiv 2407.01082) tokens that are far less likely
than the likeliest one are never drawn.
"""

from __future__ import annotations

import math

import torch


def top_k_only(logits: torch.Tensor, top_k: int) -> torch.Tensor:
    """Logits [..., V] with −∞ below the ``top_k``-th largest; those as large as it stay too."""
    if top_k >= logits.shape[-1]:
        return logits
    least = logits.topk(top_k, dim=-1).values[..., -1:]
    return logits.masked_fill(logits < least, -math.inf)


def top_p_only(logits: torch.Tensor, temperature: float, top_p: float) -> torch.Tensor:
    """Logits [..., V] with −∞ outside the nucleus of softmax(logits / T); ``temperature`` is above 0."""
    # From the least likely one upwards, so that many small p are summed before the large ones.
    ordered, places = (logits.float() / temperature).sort(dim=-1)
    outside = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - top_p
    outside[..., -1] = False
    return logits.masked_fill(torch.zeros_like(outside).scatter(-1, places, outside), -math.inf)


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
