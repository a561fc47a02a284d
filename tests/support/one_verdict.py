"""Greedy acceptance in one sentence, and random trees with repeated guesses.

The accepted node is the deepest one whose path consists of the model's choices, the first by number if
several are equally deep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tiny
from hypothesis import strategies as st

V = 3  # so few that siblings, cousins and the model often agree


class Case(NamedTuple):
    """A tree of tokens, and the token that the model chooses after each node."""

    parents: list[int]
    tokens: list[int]
    choices: list[int]

    @property
    def path(self) -> list[int]:
        """The accepted nodes, by listing all paths."""
        paths = [tiny.path_to(self.parents, node) for node in range(len(self.parents))]
        agreed = [path for path in paths if all(map(self._agrees, path[1:]))]
        return min(agreed, key=lambda path: (-len(path), path[-1]))

    def _agrees(self, node: int) -> bool:
        return self.tokens[node] == self.choices[self.parents[node]]


def tokens_above(parents: Sequence[int], tokens: Sequence[int], node: int) -> tuple[int, ...]:
    """The tokens that the model has read at a node of a tree."""
    return tuple(tokens[above] for above in tiny.path_to(parents, node))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Nodes with the same tokens above them get the same choice, as a model gives it."""
    parents = draw(tiny.parent_lists(16))
    tokens = draw(st.lists(st.integers(0, V - 1), min_size=len(parents), max_size=len(parents)))
    read = [tokens_above(parents, tokens, node) for node in range(len(parents))]
    choices = {one: draw(st.integers(0, V - 1)) for one in dict.fromkeys(read)}
    return Case(parents, tokens, [choices[one] for one in read])
