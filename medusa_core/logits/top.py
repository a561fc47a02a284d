"""Top-k and top-p: only the likeliest tokens may be drawn, by their number or by the sum of their p.

Top-k (Fan et al., 2018, arXiv 1805.04833) keeps the k likeliest; top-p, nucleus sampling (Holtzman et al.,
2020, arXiv 1904.09751), the fewest whose p sum to at least p. The bounds are those of transformers'
``TopKLogitsWarper`` and ``TopPLogitsWarper``.
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
