"""Proposes nothing: a tree of one node, which makes the decode loop plain decoding."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from medusa_core.drafters import Draft, Drafter, Method, NoSettings
from medusa_core.trees.origin import ROOT

if TYPE_CHECKING:
    from medusa_core.llama.greedy import Guessing
    from medusa_core.model.target import Target
    from medusa_core.trees.token_tree import TokenTree

METHOD = Method(
    title="Plain decoding",
    mark="",
    help="no drafts: one token a step, the baseline",
    build=f"{__name__}:PlainDrafter",
    design="The model alone, one token a step.",
)


class PlainDrafter(Drafter):
    """The root alone, every step."""

    largest_tree = 1

    def __init__(self, target: Target, draft: Draft | None, settings: NoSettings) -> None:
        self._root = target.token_tree([0], [-1], [ROOT])

    def propose(self, root: int, depth: int) -> TokenTree:
        """A tree of the root alone, the same in every step but for its token."""
        tokens = self._root.tokens
        return replace(self._root, tokens=tokens.new_tensor([root]))

    @property
    def guessing(self) -> Guessing:
        from medusa_core.llama.greedy import Guessing  # noqa: PLC0415 - which needs torch

        return Guessing(self._root, [0])
