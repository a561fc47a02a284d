"""Typical acceptance: keep what the model finds plausible enough.

A node passes when p > min(ε, δ · exp(−H)), with p and the entropy H of softmax(logits / T) at its parent:
where the model is sure the bar is ε, where many tokens would do it falls with the entropy. At temperature
0 it is greedy matching. Paper §2.3.1; the output follows the model closely but not exactly.
"""

from __future__ import annotations

import math

import torch

from medusa_core.acceptance import match
from medusa_core.acceptance.sampling import choose
from medusa_core.acceptance.verdict import Verdict, longest_path, node_statistics
from medusa_core.config import GenerationConfig
from medusa_core.trees.token_tree import TokenTree


class Rule:
    """p against an entropy-dependent threshold; the root by argmax, or sampled with ``root="sample"``."""

    def __init__(self, config: GenerationConfig, generator: torch.Generator) -> None:
        self._config = config
        self._generator = generator
        self._greedy = match.Rule(config, generator) if config.temperature <= 0 else None

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """One token a row of ``logits`` [N, V]."""
        sampled = self._config.root == "sample"
        return choose(logits, self._config.temperature if sampled else 0.0, self._generator)

    def __call__(self, tree: TokenTree, logits: torch.Tensor) -> Verdict:
        """Judge every node against the threshold at its parent."""
        if self._greedy is not None:
            return self._greedy(tree, logits)
        statistics = node_statistics(tree, logits, self._config.temperature)
        bars = [threshold(h, self._config.epsilon, self._config.delta) for h in statistics.entropy]
        passes = [parent < 0 or statistics.p[node] > bars[node] for node, parent in enumerate(tree.parents)]
        path = longest_path(tree, passes, statistics.p)
        bonus = int(self.choose(logits[path[-1]][None])[0])
        return Verdict(
            path=path, bonus=bonus, passes=passes, statistics=statistics, threshold=bars, choices=None
        )


def threshold(entropy: float, epsilon: float, delta: float) -> float:
    """min(ε, δ · exp(−H)); entropy H in nats."""
    return min(epsilon, delta * math.exp(-entropy))
