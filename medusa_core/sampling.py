"""Logits to probabilities, entropies and choices.

Temperature 0 means the argmax; it is never reached as the limit of a softmax. Knows nothing about trees.

V vocabulary · N rows
"""

from __future__ import annotations

import torch

ENTROPY_GUARD = 1e-5  # inside the logarithm, as in the public Medusa code, so that verdicts agree with it


def probabilities(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """softmax(logits / temperature) in float32, [N, V]. ``temperature`` must be above 0."""
    if temperature <= 0:
        raise ValueError(f"temperature {temperature} has no distribution: use choose() for the argmax")
    logits = logits.float()
    # Shifted first, so that a tiny temperature cannot overflow.
    return torch.softmax((logits - logits.amax(dim=-1, keepdim=True)) / temperature, dim=-1)


def entropy(probs: torch.Tensor) -> torch.Tensor:
    """Entropy in nats of each row, [N]."""
    return -(probs * torch.log(probs + ENTROPY_GUARD)).sum(dim=-1)


def choose(logits: torch.Tensor, temperature: float, generator: torch.Generator | None) -> torch.Tensor:
    """One token a row, [N]: the argmax at temperature 0, one draw each above."""
    if temperature <= 0:
        # The same as argmax, which on a CPU takes three times as long in bfloat16.
        return logits.max(dim=-1).indices
    return torch.multinomial(probabilities(logits, temperature), 1, generator=generator).squeeze(-1)
