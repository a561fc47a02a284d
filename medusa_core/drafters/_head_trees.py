"""Trees filled by heads: how a run's settings name them. All but the dynamic ones keep one shape."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard

from medusa_core.config import setting
from medusa_core.drafters._drafter import Draft
from medusa_core.errors import MedusaError, counted, shortened
from medusa_core.trees.search import assumed_accuracies, search_tree
from medusa_core.trees.tree import MAX_NODES, Topology, load_tree

if TYPE_CHECKING:
    import torch

    from medusa_core.model.target import Target

AUTO, DEFAULT = "auto", "default"  # the fastest on this machine, and the one shipped with the heads
DYNAMIC = "dynamic-"  # followed by the number of nodes, the root included
_LONGEST_NAME = 40
_FALLBACK_NODES = 15  # drafted nodes of the default tree of heads that bring none


@dataclass(frozen=True)
class TreeSettings:
    """Which guesses of the heads are combined; drafters with heads share it, as one flag and one menu."""

    tree: str | Topology = setting(
        AUTO,
        "auto (the fastest here, by step times measured once on this machine; default where none are known), "
        "default (shipped with the heads), a published tree, cartesian-4x2x1, a .json file or, for Medusa's "
        "heads, dynamic-16 (in each step the 16 nodes that they find likeliest)",
    )

    def __post_init__(self) -> None:
        if is_dynamic(self.tree):
            dynamic_nodes(self.tree)  # reports a wrong number before a model is loaded


@dataclass(frozen=True)
class HeadsDraft(Draft):
    """Weights that are K heads, each guessing a token at a fixed distance.

    ``accuracies[k][i]``: how often head k + 1's guess of rank i was right.

    T tokens · R ranks
    """

    kind: ClassVar[str]
    heads: Any
    default_tree: Topology | None = None
    accuracies: list[list[float]] | None = None

    @property
    def count(self) -> int:
        """K."""
        return self.heads.count

    @property
    def label(self) -> str:
        """For the badge."""
        return counted(self.count, f"{self.kind} head")

    def tensors(self) -> Iterator[torch.Tensor]:
        """The heads' weights, without those of an LM head that is the model's."""
        yield from self.heads.parameters()

    @abstractmethod
    def guesses(self, target: Target, tokens: Sequence[int], ranks: int, start: int = 0) -> torch.Tensor:
        """[K, T − start, R]: head k's best guesses of token t + k + 1 at position t, −1 where it has none."""

    @abstractmethod
    def is_untrained(self, target: Target) -> bool:
        """Whether the heads only predict what the base predicts."""

    def tree(self, name: str | Topology) -> Topology:
        """The tree that a setting names (``named_tree``)."""
        return named_tree(name, self.count, self.default_tree, self.accuracies)

    def budget_tree(self, nodes: int) -> Topology:
        """The best tree of ``nodes`` drafted nodes for the heads' accuracies, measured or else assumed."""
        return budget_tree(nodes, self.count, self.accuracies)


def named_tree(
    name: str | Topology,
    heads: int,
    shipped: Topology | None,
    accuracies: Sequence[Sequence[float]] | None = None,
) -> Topology:
    """The tree that a setting names: "auto" without step times, "default" or one that ``load_tree`` knows.

    ``shipped`` lies beside the heads. Raises MedusaError for a name that no tree has.
    """
    if isinstance(name, Topology):
        return name
    if not isinstance(name, str):
        kinds = "a name, a .json file or Topology.from_choices([(0,), (0, 0)])"
        raise MedusaError(f"tree is {name!r:.40} ({type(name).__name__}): give {kinds}")
    if is_dynamic(name):
        raise MedusaError(
            "only Medusa's heads fill dynamic trees: leave Hydra's and TokenSwift's out, or name another tree"
        )
    if name not in (AUTO, DEFAULT):
        return load_tree(name, besides=(AUTO, DEFAULT, f"{DYNAMIC}16"))
    return shipped or budget_tree(_FALLBACK_NODES, heads, accuracies)


def is_dynamic(tree: object) -> TypeGuard[str]:
    """Whether a setting names a tree that changes with each step."""
    return isinstance(tree, str) and tree.startswith(DYNAMIC)


def dynamic_nodes(name: str) -> int:
    """The nodes of a dynamic tree, the root included. Raises MedusaError for a name without such a number."""
    number = name.removeprefix(DYNAMIC)
    nodes = int(number) if re.fullmatch(r"[1-9]\d{0,2}", number, re.ASCII) else 0
    if not 2 <= nodes <= MAX_NODES:
        called = repr(shortened(name, _LONGEST_NAME))
        raise MedusaError(f"no tree is called {called}: write {DYNAMIC}2 to {DYNAMIC}{MAX_NODES}")
    return nodes


def budget_tree(nodes: int, heads: int, accuracies: Sequence[Sequence[float]] | None) -> Topology:
    """The best tree of ``nodes`` drafted nodes for the heads' accuracies, measured or else assumed."""
    return search_tree(accuracies or assumed_accuracies(heads), nodes).topology
