"""Typical acceptance: keep what the model finds plausible enough.

A node passes when p > min(ε, δ · exp(−H)), with p and the entropy H of softmax(logits / T) at its parent:
where the model is sure the bar is ε, where many tokens would do it falls with the entropy. At temperature
0 it is greedy matching. Paper §2.3.1; the output follows the model closely but not exactly. A sampled root is
drawn as the public code draws it: from the tokens with p ≥ the bar, their p made to sum to 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa_core.acceptance import RuleInfo
from medusa_core.acceptance.sampling import DrawingRule, choose, drawn, entropy, probabilities, require_drawn
from medusa_core.acceptance.verdict import Verdict, longest_path, statistics_beside
from medusa_core.config import setting

if TYPE_CHECKING:
    import torch

    from medusa_core.trees.token_tree import TokenTree


@dataclass(frozen=True)
class Settings:
    """The threshold, and how the root is chosen."""

    epsilon: float = setting(
        0.09, "ε, the highest threshold of typical acceptance", low=0.01, high=1.0, step=0.01
    )
    delta: float = setting(
        0.3, "δ, scales the threshold δ·exp(−entropy) of typical acceptance", low=0.01, high=1.0, step=0.01
    )
    root: str = setting(
        "argmax",
        "how typical acceptance picks the root: the likeliest token, or a draw of those above the bar",
        choices=("argmax", "sample"),
    )


class TypicalRule(DrawingRule):
    """p against an entropy-dependent threshold; the root by argmax, or drawn with ``root="sample"``."""

    def __init__(self, temperature: float, settings: Settings, generator: torch.Generator) -> None:
        super().__init__(temperature, settings, generator)
        self._settings = settings
        self._samples_root = settings.root == "sample"

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """One token a row of ``logits`` [N, V]."""
        if not self._samples_root:
            return choose(logits, 0.0, self._generator)
        probs = probabilities(logits, self._temperature)
        bars = (self._settings.delta * (-entropy(probs)).exp()).clamp(max=self._settings.epsilon)
        # Where no token reaches the bar, the likeliest ones stay.
        bars = bars.minimum(probs.amax(dim=-1))
        return drawn(probs.masked_fill(probs < bars[:, None], 0), self._generator)

    def __call__(self, tree: TokenTree, logits: torch.Tensor) -> Verdict:
        """Judge every node against the threshold at its parent."""
        # Greedy roots of all nodes come with the statistics; a draw is made at the node that ends the path.
        best = [] if self._samples_root else [self.choose(logits)]
        statistics, (tokens, *roots) = statistics_beside(tree, logits, self._temperature, tree.tokens, *best)
        thresholds = [threshold(h, self._settings.epsilon, self._settings.delta) for h in statistics.entropy]
        passes = [
            parent < 0 or statistics.p[node] > thresholds[node] for node, parent in enumerate(tree.parents)
        ]
        path = longest_path(tree, passes, statistics.p)
        bonus = roots[0][path[-1]] if roots else int(self.choose(logits[path[-1]][None])[0])
        require_drawn([bonus], logits.shape[-1])
        return Verdict(
            path=path,
            accepted=[tokens[node] for node in path],
            bonus=bonus,
            passes=passes,
            statistics=statistics,
            threshold=thresholds,
            failure="below threshold",
        )


def threshold(entropy: float, epsilon: float, delta: float) -> float:
    """min(ε, δ · exp(−H)); entropy H in nats."""
    return min(epsilon, delta * math.exp(-entropy))


RULE = RuleInfo(
    help="keep what the model finds plausible enough: longer paths, not exactly its distribution",
    build=TypicalRule,
    settings=Settings,
)
