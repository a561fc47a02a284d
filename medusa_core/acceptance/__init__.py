"""Acceptance rules, one a file, found by the file's name.

A rule's module defines ``RULE``, a ``RuleInfo`` with its help, its settings and the class to build. Modules
import torch for annotations alone, so that reading settings costs nothing.
Imports: trees.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from medusa_core.acceptance.sampling import Sampling
from medusa_core.config import GenerationConfig, pick_settings
from medusa_core.errors import MedusaError, name_fix

if TYPE_CHECKING:
    import torch

    from medusa_core.acceptance.verdict import Verdict
    from medusa_core.trees.token_tree import TokenTree

_SHARED = {"verdict", "sampling", "logits"}  # modules of this package that are not rules


@dataclass(frozen=True)
class NoSettings:
    """The settings of a rule or a drafter that has none."""


@dataclass(frozen=True)
class RuleInfo:
    """The description of a rule; ``build(temperature, settings, generator)`` makes the rule of a run."""

    help: str  # one sentence, behind its name
    build: Callable[[float, Any, torch.Generator], AcceptanceRule]
    settings: type = NoSettings
    weighs_draws: bool = False  # whether drafters that can should draw their guesses above temperature 0


class AcceptanceRule(Protocol):
    """What the decode loop asks of a rule. N nodes · V vocabulary

    ``by_argmax``: a node passes if it is the argmax at its parent, so that the device can find the path by
    itself. A step may then be made in C without calling the rule.
    """

    by_argmax: bool

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """The token to go on with after each row of ``logits`` [N, V]: root and bonus tokens."""
        ...

    def __call__(self, tree: TokenTree, logits: torch.Tensor) -> Verdict:
        """Judge every node of the tree by ``logits`` [N, V]."""
        ...


@functools.cache
def rule_names() -> tuple[str, ...]:
    """The names of all rules."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in names if name not in _SHARED))


@functools.cache
def rule_info(name: str) -> RuleInfo:
    """The description of a rule. Raises MedusaError for an unknown name."""
    if name not in rule_names():
        raise MedusaError(f"no acceptance rule {name!r:.30}: {name_fix(name, rule_names())}")
    return importlib.import_module(f"{__name__}.{name}").RULE


def rules_in_words() -> list[str]:
    """The setting's own help, and "NAME: help" for each rule that it does not mention."""
    own: str = GenerationConfig.__dataclass_fields__["acceptance"].metadata["help"]
    return [own, *(f"{name}: {rule_info(name).help}" for name in rule_names() if f"{name}: " not in own)]


def rule_settings(config: GenerationConfig) -> Any:
    """The settings of the rule that ``config`` names. Raises MedusaError when one is out of range."""
    return pick_settings(rule_info(config.acceptance).settings, config.options)


def make_rule(config: GenerationConfig, generator: torch.Generator) -> AcceptanceRule:
    """The rule named by ``config.acceptance``; at temperature 0 each is greedy matching.

    Raises MedusaError for an unknown name.
    """
    info, settings = rule_info(config.acceptance), rule_settings(config)
    if config.temperature <= 0:
        info, settings = rule_info("match"), NoSettings()
    return info.build(config.temperature, settings, generator)


def sampling_of(config: GenerationConfig, generator: torch.Generator) -> Sampling | None:
    """How drafters that can should draw their guesses in this run; None where they take the likeliest."""
    if config.temperature <= 0 or not rule_info(config.acceptance).weighs_draws:
        return None
    return Sampling(config.temperature, generator)
