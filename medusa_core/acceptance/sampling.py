"""Logits to probabilities, entropies and choices.

Temperature 0 means the argmax; it is never reached as the limit of a softmax.

V vocabulary · N rows
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medusa_core.errors import MedusaError

if TYPE_CHECKING:
    import torch

ENTROPY_GUARD = 1e-5  # inside the logarithm, as in the public Medusa code, so that verdicts agree with it
# At this temperature all but the largest logits have probability 0; float32 rounds much lower ones to 0, and
# then 0 / 0 is not a number.
COLDEST = 1e-30
_BELOW_ONE = 1 - 2**-52  # keeps rounding from lifting a number to the sum of all p


@dataclass(frozen=True)
class Sampling:
    """How a drafter draws its guesses in a run: at the temperature and by the random numbers of its rule."""

    temperature: float  # above 0
    generator: torch.Generator

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """The distributions to draw from, [N, V] in float32."""
        return probabilities(logits, self.temperature)

    def draw(self, probs: torch.Tensor, count: int) -> torch.Tensor:
        """``count`` different tokens from ``probs`` [V], in draw order; fewer where fewer are possible."""
        # The Gumbel-top-k trick, written with exponentials: the largest of p / e is a draw from p, the
        # next one a draw from the rest of it.
        waits = probs.new_empty(probs.shape).exponential_(generator=self.generator)
        values, tokens = (probs / waits).topk(min(count, len(probs)))
        return tokens[values > 0]


def probabilities(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """softmax(logits / temperature) in float32, [N, V]. ``temperature`` must be above 0."""
    if temperature <= 0:
        raise ValueError(f"temperature {temperature} has no distribution: use choose() for the argmax")
    logits = logits.float()
    if temperature == 1:
        return logits.softmax(dim=-1)
    # Shifted first, so that a tiny temperature cannot overflow.
    return ((logits - logits.amax(dim=-1, keepdim=True)) / max(temperature, COLDEST)).softmax(dim=-1)


def entropy(probs: torch.Tensor) -> torch.Tensor:
    """Entropy in nats of each row, [N]."""
    # Written into one buffer: the rows are as long as the vocabulary.
    return (probs + ENTROPY_GUARD).log_().mul_(probs).sum(dim=-1).neg_()


def largest(logits: torch.Tensor) -> torch.Tensor:
    """The greedy choice of each row [..., V]: the first of the largest, or the first NaN where there is one.

    ``argmax`` in forward.c chooses the same.
    """
    return logits.max(dim=-1).indices  # torch's argmax takes three times as long in bfloat16 on a CPU


def choose(logits: torch.Tensor, temperature: float, generator: torch.Generator | None) -> torch.Tensor:
    """One token a row, [N]: the largest logit at temperature 0, one draw each above.

    It is V where the largest logit is not finite, as in ``drawn``: it reaches ``require_drawn`` on the host
    together with the tokens.
    """
    if temperature <= 0:
        values, tokens = logits.max(dim=-1)
        return tokens.masked_fill_(~values.isfinite(), logits.shape[-1])
    return drawn(probabilities(logits, temperature), generator)


def drawn(probs: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """One token a row of ``probs`` [N, V], [N]; on a CPU V for a row with NaN (see ``require_drawn``)."""
    if probs.device.type != "cpu":
        return probs.multinomial(1, generator=generator).squeeze(-1)
    # Inverse transform sampling: one random number for each row, and its place among the cumulative sums of
    # p, in float64 so that small p count too. torch's multinomial takes a random number for each token.
    sums = probs.double().cumsum(dim=-1)
    below = sums.new_empty(len(sums), 1).uniform_(generator=generator) * (sums[:, -1:] * _BELOW_ONE)
    return sums.gt(below).logical_not_().sum(dim=-1)


class DrawingRule:
    """What the rules share that choose by the model's whole distribution."""

    by_argmax = False

    def __init__(self, temperature: float, settings: Any, generator: torch.Generator) -> None:
        self._temperature, self._generator = temperature, generator

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """One token a row of ``logits`` [N, V]: argmax or one draw."""
        return choose(logits, self._temperature, self._generator)


def require_drawn(tokens: Iterable[int], vocabulary: int) -> None:
    """Raise MedusaError if a token was chosen from numbers that are not finite or no distribution."""
    if max(tokens) >= vocabulary:
        raise not_a_number()


def not_a_number() -> MedusaError:
    """The error for a model from whose output nothing can be drawn."""
    return MedusaError(
        "the model's output is not a number, its weights are damaged or too large for their dtype: "
        "fetch them again, or use --dtype float32"
    )
