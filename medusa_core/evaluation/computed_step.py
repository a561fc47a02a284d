"""How long a step of a method would take on another model and device, by formulas alone.

The draft costs what the drafter's published design does at that size, as its module counts it; the
verification is the model's own step over the nodes. Each product takes its time by the roofline, one after
the other (paper Appendix G.1), so this is the least a step could take, and nothing of it is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from medusa_core.checkpoints.locate import beside_heads, tree_beside
from medusa_core.checkpoints.names import ACCURACIES_NAME
from medusa_core.checkpoints.sources import find_sources
from medusa_core.drafters import draft_products, method, owner_of
from medusa_core.drafters._head_trees import budget_tree
from medusa_core.drafters._own_settings import read_own_settings
from medusa_core.drafters.medusa import NAME as HEADS
from medusa_core.hardware.devices import Device
from medusa_core.hardware.operators import Work, step_seconds, timed
from medusa_core.hardware.shapes import ModelShape
from medusa_core.trees.search import read_accuracies
from medusa_core.trees.tree import Topology, load_tree


@dataclass(frozen=True)
class ComputedStep:
    """The seconds of a step's two parts."""

    draft: float
    verify: float

    @property
    def seconds(self) -> float:
        """Seconds of both parts, one after the other."""
        return self.draft + self.verify


def computed_step(
    name: str,
    options: Mapping[str, Any],
    nodes: int,
    shape: ModelShape,
    device: Device,
    context: int,
    weight_bytes: float | None = None,
) -> ComputedStep:
    """A step of the method ``name`` over ``nodes`` nodes, the root included, at ``context`` positions.

    ``options`` are the settings of its drafters by name. ``weight_bytes`` are those of a weight of the
    model's layers, 2 where none are given; drafters have 2 always.
    """
    plain = Work(1, 1, context, weight_bytes=weight_bytes)
    drafted = timed(draft_products(name, options, shape, plain), device)
    return ComputedStep(
        sum(each.step_seconds for each in drafted),
        step_seconds(shape, replace(plain, tokens=nodes), device),
    )


def embedded_options(kind: str = "cpu") -> dict[str, dict[str, Any]]:
    """Settings and tree that the embedded model's drafters bring for a kind of device, without loading them.

    They are by drafter. Raises MedusaError for a damaged file.
    """
    found, device = {}, torch.device(kind)
    for folder in find_sources("", "").drafts:
        name = owner_of(folder)
        settings = method(name).settings
        options = dict(read_own_settings(folder, settings, device))
        tree = tree_beside(folder, device)
        if tree is not None and "tree" in {item.name for item in fields(settings)}:
            options["tree"] = load_tree(str(tree))
        found[name] = options
    return found


def embedded_tree(size: int) -> Topology | None:
    """The best tree of ``size`` nodes, the root included, for the accuracies of the embedded model's heads.

    None where they are not known. Raises MedusaError for a damaged file.
    """
    folders = [folder for folder in find_sources("", "").drafts if owner_of(folder) == HEADS]
    known = beside_heads(folders[0], ACCURACIES_NAME) if folders else None
    if known is None or size < 2:
        return None
    accuracies = read_accuracies(known)
    return budget_tree(size - 1, len(accuracies), accuracies)
