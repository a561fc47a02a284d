"""Grows a tree of the text's likeliest continuations from the suffix automaton of the text so far."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from medusa_core.drafters import Draft, Drafter
from medusa_core.drafters.suffix import Settings
from medusa_core.drafters.suffix.automaton import Match, SuffixAutomaton
from medusa_core.errors import counted
from medusa_core.trees.origin import ROOT, Origin
from medusa_core.trees.tree import depths_of

if TYPE_CHECKING:
    import torch

    from medusa_core.model.target import Target
    from medusa_core.trees.token_tree import TokenTree

_NAME = __name__.split(".")[-2]
_LEAST_WEIGHT = 0.01  # shorter endings are left out where longer ones have left less than this


@dataclass(frozen=True)
class Guess:
    """A node below the root: its token, the product ``p`` of the shares down to it, where it was found."""

    token: int
    parent: int
    p: float
    match: Match  # the path's longest ending, this token included, that stands in the text


class SuffixDrafter(Drafter):
    """Keeps the automaton of the text and drafts its likeliest continuations."""

    def __init__(self, target: Target, draft: Draft | None, settings: Settings) -> None:
        self.largest_tree = settings.draft_nodes + 1
        self._target = target
        self._settings = settings
        self._tokens: list[int] = []
        self._automaton = SuffixAutomaton()

    @property
    def length(self) -> int:
        return self._automaton.length

    def propose(self, root: int, depth: int) -> TokenTree:
        """The continuations of the text and ``root`` with the largest shares."""
        depth = min(depth, self._settings.suffix_depth)
        drafted = grown(self._automaton, root, depth, self._settings.draft_nodes, self._settings.suffix_least)
        parents = [-1, *(guess.parent for guess in drafted)]
        p = [1.0, *(guess.p for guess in drafted)]
        return self._target.token_tree(
            [root, *(guess.token for guess in drafted)],
            parents,
            [ROOT, *map(self._origin, drafted, depths_of(parents)[1:])],
            [1.0, *(guess.p / p[guess.parent] for guess in drafted)],
        )

    def observe(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        self._tokens += tokens
        self._automaton.extend(tokens)

    def truncate(self, length: int) -> None:
        """Read the first ``length`` tokens anew: an automaton can only grow."""
        if length < len(self._tokens):
            del self._tokens[length:]
            self._automaton = SuffixAutomaton()
            self._automaton.extend(self._tokens)

    def _origin(self, guess: Guess, depth: int) -> Origin:
        found, size = self._automaton.count(guess.match), guess.match.length - 1
        back = len(self._tokens) + depth - self._automaton.latest(guess.match)
        times = "once" if found == 1 else f"{found} times"
        after = f"after the same {counted(size, 'token')}" if size > 1 else "after the same token"
        return Origin(
            _NAME, label=f"×{found}", note=f"found {times} {after}, last at distance {back}", back=back
        )


def grown(automaton: SuffixAutomaton, root: int, depth: int, most: int, least: float) -> list[Guess]:
    """At most ``most`` nodes below ``root``, each with the largest share of those that may still be added.

    A node comes after its parent, no deeper than ``depth`` and with a share of at least ``least``.
    """
    guesses: list[Guess] = []
    waiting: list[tuple[float, int, int, Guess]] = []  # by share; of equal ones the first found comes first
    number = count()
    place, match, p, level = 0, automaton.end(root), 1.0, 1
    while True:
        if level <= depth:
            for token, (share, longer) in continuations(automaton, match).items():
                if p * share >= least:
                    guess = Guess(token, place, p * share, longer)
                    heapq.heappush(waiting, (-guess.p, next(number), level, guess))
        if not waiting or len(guesses) == most:
            return guesses
        _, _, level, guess = heapq.heappop(waiting)
        guesses.append(guess)
        place, match, p, level = len(guesses), guess.match, guess.p, level + 1


def continuations(automaton: SuffixAutomaton, match: Match) -> dict[int, tuple[float, Match]]:
    """The tokens that followed an ending or its shorter ones: each with its share and its longest match.

    An ending of n tokens takes n / (n + 1) of the weight that longer ones have left, since longer endings are
    surer; each token gets the share of it that its places have among all.
    """
    found: dict[int, tuple[float, Match]] = {}
    left = 1.0
    for ending in automaton.shorter(match):
        if left < _LEAST_WEIGHT:
            break
        followers = automaton.followers(ending)
        if not followers:  # the ending stands at the text's end alone
            continue
        weight = left * ending.length / (ending.length + 1)
        total = sum(followers.values())
        for token, times in followers.items():
            share, longest = found.get(token, (0.0, None))
            found[token] = (share + weight * times / total, longest or automaton.longer(ending, token))
        left -= weight
    return found
