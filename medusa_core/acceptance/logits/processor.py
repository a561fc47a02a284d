"""The processing of a run's logits, as the decode loop calls it.

N nodes · V vocabulary

Top-k (Fan et al., 2018, arXiv 1805.04833) keeps the k likeliest; top-p, nucleus sampling (Holtzman et al.,
2020, arXiv 1904.09751), the fewest whose p sum to at least p. The bounds are those of transformers'
``TopKLogitsWarper`` and ``TopPLogitsWarper``. With min-p (arXiv 2407.01082) tokens that are far less likely
than the likeliest one are never drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from medusa_core.acceptance.logits.penalty import ContextualPenalty

if TYPE_CHECKING:
    from medusa_core.config import GenerationConfig
    from medusa_core.trees.token_tree import TokenTree


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


def without_unlikely(logits: torch.Tensor, temperature: float, min_p: float) -> torch.Tensor:
    """Logits [..., V] with −∞ where softmax(logits / T) is below ``min_p`` times its largest value.

    ``temperature`` and ``min_p`` are above 0.
    """
    # p / pmax = exp((l − lmax) / T), so that no softmax is needed. In float32, since a sum of two numbers of
    # fewer digits could miss the bound.
    lowest = logits.amax(dim=-1, keepdim=True).float() + temperature * math.log(min_p)
    return logits.masked_fill(logits < lowest, -math.inf)


class LogitsProcessor:
    """The contextual penalty and the truncation of one run. The logits it is given stay as they are."""

    def __init__(self, config: GenerationConfig) -> None:
        self._penalty = ContextualPenalty(config.penalty, config.penalty_window) if config.penalises else None
        self._temperature = config.temperature
        self._bounds = config.truncation

    def begin(self, prompt: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
        """Begin with the text ``prompt``; return the processed ``logits`` [V] after its last token."""
        if self._penalty is not None:
            self._penalty.begin(prompt)
            logits = self._penalty.after_text(logits)
        return self._truncated(logits)

    def __call__(self, logits: torch.Tensor, tree: TokenTree) -> torch.Tensor:
        """The processed ``logits`` [N, V] after the nodes of ``tree``, which continues the text so far."""
        if self._penalty is not None:
            logits = self._penalty.after_nodes(logits, tree)
        return self._truncated(logits)

    def observe(self, tokens: Sequence[int]) -> None:
        """The text goes on with ``tokens``."""
        if self._penalty is not None:
            self._penalty.observe(tokens)

    def _truncated(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits [..., V] after top-k, top-p and min-p, in this order as in transformers."""
        if "top_k" in self._bounds:
            logits = top_k_only(logits, self._bounds["top_k"])
        if "top_p" in self._bounds:
            logits = top_p_only(logits, self._temperature, self._bounds["top_p"])
        if "min_p" in self._bounds:
            logits = without_unlikely(logits, self._temperature, self._bounds["min_p"])
        return logits


def processor_of(config: GenerationConfig) -> LogitsProcessor | None:
    """The logits processor for these settings; None where the logits stay as they are."""
    return LogitsProcessor(config) if config.penalises or config.truncation else None
