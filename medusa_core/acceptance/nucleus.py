"""Nucleus acceptance: the model draws a token anew at each node of each path, and the longest match is kept.

This is the public Medusa code's ``sampling="nucleus"``; its ``top_p`` is the run's own, which has already
removed other tokens from the logits. Each path from the root to a leaf has draws of its own, also at nodes
that it shares with others. The path with the longest run of drawn guesses is kept, and the next root is one
more draw. So a guess on several paths has several chances, and behind a refused guess the model may draw
that very guess: guessed tokens come too often. It is biased with every drafter that guesses; ``match`` with
the same top-p is exact. At temperature 0 it is greedy matching. Of equally long matches Medusa's code keeps
the first, TokenSwift's one at random (arXiv 2502.18890, §2.4).

N nodes · V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from medusa_core.acceptance import RuleInfo
from medusa_core.acceptance.sampling import DrawingRule, require_drawn
from medusa_core.acceptance.verdict import Verdict
from medusa_core.config import setting
from medusa_core.trees.tree import paths_of

if TYPE_CHECKING:
    import torch

    from medusa_core.trees.token_tree import TokenTree


@dataclass(frozen=True)
class Settings:
    """Which of several equally long matches is kept."""

    ties: str = setting(
        "first",
        "which of equally long paths nucleus acceptance keeps: the first, or one at random as TokenSwift",
        choices=("first", "random"),
    )


class NucleusRule(DrawingRule):
    """One draw for each node of each path, and one more for the next root."""

    def __init__(self, temperature: float, settings: Settings, generator: torch.Generator) -> None:
        super().__init__(temperature, settings, generator)
        self._ties = settings.ties

    def __call__(self, tree: TokenTree, logits: torch.Tensor) -> Verdict:
        """Judge every path from the root to a leaf by draws of its own."""
        paths = paths_of(tree.parents)
        rest = iter(self._draws(logits, [node for path in paths for node in path[:-1]]))
        tokens = tree.tokens.tolist()
        tried, won = [0] * tree.size, [0] * tree.size
        longest: list[list[int]] = [[0]]
        for path in paths:
            kept = [0]
            for node, token in zip(path[1:], list(islice(rest, len(path) - 1)), strict=True):
                tried[node] += 1
                if token != tokens[node]:
                    break
                won[node] += 1
                kept.append(node)
            if len(kept) > len(longest[0]):
                longest = []
            if not longest or len(kept) == len(longest[0]):
                longest.append(kept)
        best = longest[self._place(len(longest))]
        return Verdict(
            path=best,
            accepted=[tokens[node] for node in best],
            bonus=self._draws(logits, best[-1:])[0],
            passes=[node == 0 or count > 0 for node, count in enumerate(won)],
            failure="never drawn",
            reasons=[f"drawn {count} of {of} times" for count, of in zip(won, tried, strict=True)],
        )

    def _place(self, count: int) -> int:
        """Which of ``count`` equally long paths is kept."""
        if self._ties == "first" or count == 1:
            return 0
        import torch  # noqa: PLC0415 - reading the settings of rules must not, and a run has

        return int(torch.randint(count, (), generator=self._generator, device=self._generator.device))

    def _draws(self, logits: torch.Tensor, rows: list[int]) -> list[int]:
        """A token for each of ``rows``, which may name a row several times."""
        if not rows:
            return []
        found: list[int] = self.choose(logits[rows]).tolist()
        require_drawn(found, logits.shape[-1])
        return found


RULE = RuleInfo(
    help="draw anew on every path and keep the longest match, as the public code with its top-p; biased",
    build=NucleusRule,
    settings=Settings,
)
