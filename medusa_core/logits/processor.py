"""All that a run does to the model's logits, as the decode loop asks for it.

N nodes · V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from medusa_core.logits.min_p import without_unlikely
from medusa_core.logits.penalty import ContextualPenalty

if TYPE_CHECKING:
    from medusa_core.config import GenerationConfig
    from medusa_core.trees.token_tree import TokenTree


class LogitsProcessor:
    """The contextual penalty and min-p of one run. The logits it is given stay as they are."""

    def __init__(self, penalty: ContextualPenalty | None, min_p: float, temperature: float) -> None:
        """``min_p`` 0: none."""
        self._penalty = penalty
        self._min_p = min_p
        self._temperature = temperature

    def begin(self, prompt: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
        """The text begins as ``prompt``: what comes of ``logits`` [V] after its last token."""
        if self._penalty is None:
            return self._likely(logits, own=False)
        self._penalty.begin(prompt, logits.device)
        return self._likely(self._penalty.after_text(logits), own=True)

    def __call__(self, logits: torch.Tensor, tree: TokenTree) -> torch.Tensor:
        """What comes of ``logits`` [N, V] after the nodes of ``tree``, which continues the text so far."""
        if self._penalty is None:
            return self._likely(logits, own=False)
        return self._likely(self._penalty.after_nodes(logits, tree), own=True)

    def observe(self, tokens: Sequence[int]) -> None:
        """The text goes on with ``tokens``."""
        if self._penalty is not None:
            self._penalty.observe(tokens)

    def _likely(self, logits: torch.Tensor, *, own: bool) -> torch.Tensor:
        if self._min_p <= 0:
            return logits
        return without_unlikely(logits, self._temperature, self._min_p, in_place=own)


def processor_of(config: GenerationConfig) -> LogitsProcessor | None:
    """What a run with these settings does to the logits, None where it leaves them alone."""
    min_p = config.min_p if config.temperature > 0 else 0.0  # the likeliest token always stays
    penalty = ContextualPenalty(config.penalty, config.penalty_window) if config.penalises else None
    if penalty is None and min_p <= 0:
        return None
    return LogitsProcessor(penalty, min_p, config.temperature)
