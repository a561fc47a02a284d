"""Acceptance rules, one a file, found by the file's name.

A rule module defines ``Rule``, built from the run's settings and a random generator, with

- ``choose(logits [N, V]) -> tokens [N]``: the token to go on with after each row (root and bonus tokens);
- ``__call__(tree, logits [N, V]) -> Verdict``.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Protocol

import torch

from medusa_core.acceptance.verdict import Verdict
from medusa_core.config import GenerationConfig
from medusa_core.errors import MedusaError
from medusa_core.trees.token_tree import TokenTree

_SHARED = {"verdict"}


class AcceptanceRule(Protocol):
    """What the decode loop asks of a rule."""

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """One token a row of ``logits`` [N, V]."""
        ...

    def __call__(self, tree: TokenTree, logits: torch.Tensor) -> Verdict:
        """Judge every node of the tree."""
        ...


def rule_names() -> list[str]:
    """Names of the rules there are."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _SHARED)


def make_rule(config: GenerationConfig, generator: torch.Generator) -> AcceptanceRule:
    """The rule named by ``config.acceptance``. Raises MedusaError for an unknown name."""
    if config.acceptance not in rule_names():
        raise MedusaError(f"no acceptance rule {config.acceptance!r}: use one of {', '.join(rule_names())}")
    module = importlib.import_module(f"{__name__}.{config.acceptance}")
    return module.Rule(config, generator)
