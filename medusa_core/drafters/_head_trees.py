"""Trees of one shape for a whole run, filled by heads: how a run's settings name them.

The leading underscore keeps this module out of the list of drafters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from medusa_core.config import setting
from medusa_core.errors import MedusaError
from medusa_core.trees.search import assumed_accuracies, search_tree
from medusa_core.trees.tree import Topology, load_tree

AUTO, DEFAULT = "auto", "default"  # the fastest on this machine, and the one shipped with the heads
_FALLBACK_NODES = 15  # drafted nodes of the default tree of heads that bring none


@dataclass(frozen=True)
class TreeSettings:
    """Which guesses of the heads are combined; drafters with heads share it, as one flag and one menu."""

    tree: str | Topology = setting(
        AUTO,
        "auto (the fastest here, by step times measured once on this machine; default where none are known), "
        "default (shipped with the heads), a published tree, cartesian-4x2x1 or a .json file",
    )


def named_tree(
    name: str | Topology,
    heads: int,
    shipped: Topology | None,
    accuracies: Sequence[Sequence[float]] | None = None,
    fastest: Topology | None = None,
) -> Topology:
    """The tree that a setting names: "auto", "default" or one that ``load_tree`` knows.

    ``shipped`` lies beside the heads, ``fastest`` is what "auto" means where step times are known. Raises
    MedusaError for a name that no tree has.
    """
    if isinstance(name, Topology):
        return name
    if not isinstance(name, str):
        kinds = "a name, a .json file or Topology.from_choices([(0,), (0, 0)])"
        raise MedusaError(f"tree is {name!r:.40} ({type(name).__name__}): give {kinds}")
    if name == AUTO and fastest is not None:
        return fastest
    if name not in (AUTO, DEFAULT):
        return load_tree(name, besides=(AUTO, DEFAULT))
    return shipped or budget_tree(_FALLBACK_NODES, heads, accuracies)


def budget_tree(nodes: int, heads: int, accuracies: Sequence[Sequence[float]] | None) -> Topology:
    """The best tree of ``nodes`` drafted nodes for the heads' accuracies, measured or else assumed."""
    return Topology.from_choices(search_tree(accuracies or assumed_accuracies(heads), nodes).choices)
