"""The best tree for a node budget, from how often each guess of each head is right.

A node's value is the product of the accuracies on its path, the expected number of accepted drafts is the
sum of the values, and adding the most valuable node that is connected maximises it, since no node is worth
more than its parent. Ties go to the shallower node, then to the smaller ranks. Paper §2.3.3.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from medusa_core.errors import MedusaError, reason_of
from medusa_core.files import read_text
from medusa_core.trees.tree import MAX_NODES, TOP_K, Choice, Topology


@dataclass(frozen=True)
class FoundTree:
    """``choices`` in the order they were added; ``expected_length`` counts the root, as tokens/step do.

    ``tokens_per_second`` are expected ones, None where no tree was timed.
    """

    choices: list[Choice]
    expected_length: float
    tokens_per_second: float | None = None

    @property
    def topology(self) -> Topology:
        """The tree itself."""
        return Topology.from_choices(self.choices)


def search_tree(accuracies: Sequence[Sequence[float]], nodes: int, max_depth: int | None = None) -> FoundTree:
    """The best tree of ``nodes`` drafted nodes. ``accuracies[k][i]``: head k + 1's guess of rank i is right.

    Raises MedusaError for accuracies outside [0, 1] or a budget that is out of range.
    """
    check_accuracies(accuracies)
    if not 1 <= nodes < MAX_NODES:
        raise MedusaError(f"the budget is {nodes} drafted nodes, it must be 1 to {MAX_NODES - 1}")
    if max_depth is not None and max_depth < 1:
        raise MedusaError(f"the deepest node is limited to {max_depth}, it must be at least 1: raise it")
    depth_limit = min(max_depth or len(accuracies), len(accuracies))
    frontier: list[tuple[float, int, Choice]] = []

    def offer(choice: Choice) -> None:
        heapq.heappush(frontier, (-node_value(accuracies, choice), len(choice), choice))

    offer((0,))
    chosen: list[Choice] = []
    expected = 1.0
    while frontier and len(chosen) < nodes:
        value, depth, choice = heapq.heappop(frontier)
        chosen.append(choice)
        expected -= value
        # Ranks are offered one after the other, which is enough while a later guess is never better.
        if choice[-1] + 1 < len(accuracies[depth - 1]):
            offer((*choice[:-1], choice[-1] + 1))
        if depth < depth_limit:
            offer((*choice, 0))
    return FoundTree(chosen, expected)


def node_value(accuracies: Sequence[Sequence[float]], choice: Choice) -> float:
    """Chance that a node and all its ancestors are right, if heads were right independently."""
    return prod(accuracies[depth][rank] for depth, rank in enumerate(choice))


def expected_lengths(accuracies: Sequence[Sequence[float]], choices: Sequence[Choice]) -> list[float]:
    """Expected tokens per step of the first 0, 1, 2 … nodes: one number more than there are choices.

    The estimate assumes that the heads are right independently of each other.
    """
    return list(itertools.accumulate((node_value(accuracies, choice) for choice in choices), initial=1.0))


def assumed_accuracies(heads: int) -> list[list[float]]:
    """Accuracies to assume until they are measured: each head and each guess worse than the one before.

    The numbers follow those shipped with the public Medusa code roughly; measured ones give a better tree.
    """
    return [[0.55 * 0.7**head / (rank + 1) ** 1.3 for rank in range(TOP_K)] for head in range(heads)]


def read_accuracies(path: Path, heads: int | None = None) -> list[list[float]]:
    """Accuracies from a JSON file: the list itself or an object with it under "accuracies".

    Raises MedusaError when they cannot be used, or are those of more than the given number of heads.
    """
    try:
        accuracies = parse_accuracies(json.loads(read_text(path)))
        check_accuracies(accuracies)
    except MedusaError as error:
        raise MedusaError(f"cannot read accuracies from {path}: {error}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise MedusaError(
            f"cannot read accuracies from {path} as JSON ({reason_of(error)}): write it anew with calibrate"
        ) from error
    if heads is not None and len(accuracies) > heads:
        raise MedusaError(
            f"{path} has accuracies of {len(accuracies)} heads, there are {heads}: calibrate these heads"
        )
    return accuracies


def parse_accuracies(data: object) -> list[list[float]]:
    """Accuracies from what JSON gave: the list itself or an object with it. Raises MedusaError."""
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - trees are built without it

    rows = data.get("accuracies") if isinstance(data, dict) else data
    try:
        return TypeAdapter(list[list[float]]).validate_python(rows, strict=True)
    except ValidationError as error:
        raise MedusaError(
            'it holds no list of numbers a head under "accuracies": write it anew with calibrate'
        ) from error


def check_accuracies(accuracies: Sequence[Sequence[float]]) -> None:
    """Raise MedusaError unless there is one list a head of falling shares in [0, 1]."""
    if not accuracies or any(not row for row in accuracies):
        raise MedusaError("accuracies are empty: give one non-empty list a head")
    for head, row in enumerate(accuracies, start=1):
        if not all(0 <= value <= 1 for value in row):
            raise MedusaError(f"an accuracy of head {head} lies outside 0 to 1: give shares, not percentages")
        if any(later > earlier for earlier, later in itertools.pairwise(row)):
            raise MedusaError(f"head {head} is more often right with a later guess: sort its accuracies")
