"""Drafters, one a file, found by the file's name: who proposes the tree that the target verifies.

A drafter module defines ``Drafter`` with a classmethod ``build(target, heads, tree, config)``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Protocol

import torch

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.errors import MedusaError
from medusa_core.target.model import Target
from medusa_core.trees.token_tree import TokenTree
from medusa_core.trees.tree import Topology


class DrafterProtocol(Protocol):
    """What the decode loop asks of a drafter. A nodes, d hidden size."""

    largest_tree: int

    def begin(self, tokens: Sequence[int], hidden: torch.Tensor) -> None:
        """The prompt was read; ``hidden`` [d] belongs to its last token."""
        ...

    def propose(self, root: int, depth: int) -> TokenTree:
        """A tree with ``root`` at its top and no node deeper than ``depth``."""
        ...

    def observe(self, tokens: Sequence[int], hidden: torch.Tensor) -> None:
        """``tokens`` [A] were committed; ``hidden`` [A, d] are their hidden states."""
        ...


def drafter_names() -> list[str]:
    """Names of the drafters there are."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def make_drafter(
    target: Target, heads: MedusaHeads | None, tree: Topology | None, config: GenerationConfig
) -> DrafterProtocol:
    """The drafter named by ``config.method``. Raises MedusaError for an unknown name."""
    if config.method not in drafter_names():
        raise MedusaError(f"no method {config.method!r}: use one of {', '.join(drafter_names())}")
    module = importlib.import_module(f"{__name__}.{config.method}")
    return module.Drafter.build(target, heads, tree, config)
