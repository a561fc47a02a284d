"""Candidate trees: which guesses are combined, who is whose parent, who may attend to whom.

A tree is written as rank tuples: ``(0, 2, 1)`` is rank 0 of head 1, then rank 2 of head 2, then rank 1 of
head 3; every prefix of a node must be in the tree. Node 0 is the root, the token the base model has already
chosen; nodes are sorted by (depth, ranks), so ``parents[i] < i`` and any first n nodes are a tree again.
Source: Medusa paper §2.1.2 (tree attention) and §2.3.3 (optimised trees).

N nodes with the root
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from medusa_core.errors import MedusaError, name_fix, reason_of
from medusa_core.files import read_text

Choice = tuple[int, ...]

MAX_NODES = 256
TOP_K = 10  # ranks a head offers; the published trees use 0 to 9
CARTESIAN_PREFIX = "cartesian-"
_LONGEST_NAME = 30  # characters of a name that is shown
_EXAMPLE = "[[0], [0, 0], [1]]"


@dataclass(frozen=True)
class Topology:
    """The shape of a tree: ``choices`` without the root, sorted by (depth, ranks)."""

    choices: tuple[Choice, ...]

    @classmethod
    def from_choices(cls, choices: Iterable[Sequence[int]]) -> Topology:
        """Sort and check rank tuples. Raises MedusaError that names the first fault."""
        nodes = sorted(map(_as_choice, choices), key=lambda c: (len(c), c))
        known: set[Choice] = {()}
        for node in nodes:
            if node in known:
                raise MedusaError(f"tree has {list(node)} twice: remove one")
            if node[:-1] not in known:
                raise MedusaError(
                    f"tree has {list(node)} but not its prefix {list(node[:-1])}: add the prefix"
                )
            known.add(node)
        if len(known) > MAX_NODES:
            raise MedusaError(
                f"tree has {len(known)} nodes, largest size is {MAX_NODES}: lower the node budget"
            )
        return cls(tuple(nodes))

    def check(self, heads: int, top_k: int = TOP_K) -> None:
        """Raise MedusaError when a node needs a head or a rank that is not there."""
        for node in self.choices:
            if len(node) > heads:
                raise MedusaError(
                    f"tree node {list(node)} has depth {len(node)}, there are {heads} heads: "
                    "use a shallower tree or more heads"
                )
            if max(node) >= top_k:
                raise MedusaError(
                    f"tree node {list(node)} uses rank {max(node)}, the heads offer ranks 0 to {top_k - 1}: "
                    "use a narrower tree"
                )

    @property
    def size(self) -> int:
        """Number of nodes N, the root included."""
        return len(self.choices) + 1

    @cached_property
    def depths(self) -> list[int]:
        """Depth of each node; the root has 0, a guess of head k has k."""
        return [0, *map(len, self.choices)]

    @cached_property
    def parents(self) -> list[int]:
        """Parent of each node; the root has -1."""
        index = {(): 0} | {choice: i + 1 for i, choice in enumerate(self.choices)}
        return [-1, *(index[choice[:-1]] for choice in self.choices)]

    @cached_property
    def ranks(self) -> list[int]:
        """Rank of each node among its head's guesses; the root has 0."""
        return [0, *(choice[-1] for choice in self.choices)]

    def limited(self, depth: int) -> Topology:
        """A copy without the nodes deeper than ``depth``."""
        if not self.choices or len(self.choices[-1]) <= depth:
            return self
        return Topology(tuple(choice for choice in self.choices if len(choice) <= depth))

    def mask(self) -> NDArray[np.bool_]:
        """[N, N]: row i may attend to column j, which is i itself or an ancestor of i."""
        return ancestor_mask(self.parents)

    def paths(self) -> list[list[int]]:
        """Node ids from the root to each leaf, leaves in node order."""
        return paths_of(self.parents)


def paths_of(parents: Sequence[int]) -> list[list[int]]:
    """The paths from the root to each leaf, the leaves in the order of their numbers."""
    return [path_to(leaf, parents) for leaf in sorted(set(range(len(parents))) - set(parents))]


def path_to(node: int, parents: Sequence[int]) -> list[int]:
    """Node ids from the root to ``node``."""
    path = [node]
    while parents[path[-1]] >= 0:
        path.append(parents[path[-1]])
    return path[::-1]


def ancestor_mask(parents: Sequence[int]) -> NDArray[np.bool_]:
    """The tree mask [N, N]: a node sees its ancestors and itself."""
    mask = np.eye(len(parents), dtype=np.bool_)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] |= mask[parent]
    return mask


def depths_of(parents: Sequence[int]) -> list[int]:
    """Depth of each node; the root has 0."""
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    return depths


def cartesian(widths: Sequence[int]) -> Topology:
    """Every combination of the first ``widths[k]`` guesses of head k + 1 (paper §2.1.2)."""
    choices: list[Choice] = []
    for depth in range(1, len(widths) + 1):
        # Counted before it is built: one large width would fill the memory.
        if len(choices) + math.prod(widths[:depth]) >= MAX_NODES:
            raise MedusaError(
                f"cartesian tree {'x'.join(map(str, widths))} has more than {MAX_NODES} nodes: lower a width"
            )
        choices += itertools.product(*(range(width) for width in widths[:depth]))
    return Topology.from_choices(choices)


def published_trees() -> dict[str, list[list[int]]]:
    """The nine trees of the public Medusa code by name."""
    text = resources.files("medusa_core.trees").joinpath("published.json").read_text(encoding="utf-8")
    return json.loads(text)


def load_tree(name: str, *, besides: Sequence[str] = ()) -> Topology:
    """A tree by name (published, ``cartesian-4x2x1``) or from a JSON file of rank tuples.

    The file holds the list itself or an object with the list under ``"choices"``. Raises MedusaError, which
    also lists the names ``besides`` that the caller knows.
    """
    published = published_trees()
    if name in published:
        return Topology.from_choices(published[name])
    if name.startswith(CARTESIAN_PREFIX):
        return cartesian(_widths(name))
    path = Path(name)
    if os.path.isdir(name):
        raise MedusaError(f"the tree {name} is a folder: name a .json file")
    names = [*besides, *published]
    if path.suffix != ".json" and not os.path.isfile(path):  # pathlib's raises when the name is too long
        raise MedusaError(
            f"no tree is called {name[:_LONGEST_NAME]!r}: "
            + name_fix(name, names, f"{', '.join(names)}, {CARTESIAN_PREFIX}4x2x1 or a .json file")
        )
    choices = _read_choices(path)
    try:
        return Topology.from_choices(choices)
    except MedusaError as error:
        raise MedusaError(f"the tree {path} cannot be used: {error}") from error


def _widths(name: str) -> list[int]:
    try:
        widths = [int(width) for width in name.removeprefix(CARTESIAN_PREFIX).split("x")]
    except ValueError:
        widths = []
    if not widths or min(widths) < 1:
        raise MedusaError(f"{name!r} is not a cartesian tree: write the widths as {CARTESIAN_PREFIX}4x2x1")
    return widths


def _read_choices(path: Path) -> list[Sequence[int]]:
    try:
        data = json.loads(read_text(path))
    except OSError as error:
        raise MedusaError(f"cannot read the tree {path}: {error.strerror}: check the path") from error
    except (ValueError, RecursionError) as error:
        raise MedusaError(
            f"the tree {path} is not JSON ({reason_of(error)}): write rank tuples such as {_EXAMPLE}"
        ) from error
    choices = data.get("choices") if isinstance(data, dict) else data
    if not isinstance(choices, list):
        raise MedusaError(f"the tree {path} holds no list of rank tuples: write them as in {_EXAMPLE}")
    return choices


def _as_choice(choice: Sequence[int]) -> Choice:
    valid = isinstance(choice, list | tuple) and len(choice) > 0
    if not valid or any(type(rank) is not int or rank < 0 for rank in choice):
        raise MedusaError(f"tree node {choice!r} is not a list of ranks such as [0, 2, 1]: fix the entry")
    return tuple(choice)
