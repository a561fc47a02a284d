"""Proposes what the text has said before: the most frequent n-grams so far that start with the root.

No weights, so it works with every model; it pays where a text repeats itself. The n-grams that start with
the root are merged into a tree, the most frequent first. TokenSwift, §2.2 (token reuse).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa_core.config import setting
from medusa_core.drafters import Colour, Draft, Drafter, Drafting, Method
from medusa_core.drafters._ngram_table import NgramTable
from medusa_core.trees.origin import ROOT, Origin

if TYPE_CHECKING:
    import torch

    from medusa_core.model.target import Target
    from medusa_core.trees.token_tree import TokenTree

_NAME = __name__.rpartition(".")[2]


@dataclass(frozen=True)
class Settings:
    """How much of the text so far goes into a tree."""

    draft_top_k: int = setting(20, "the most n-grams merged into the tree", low=1, high=64, step=1)
    draft_depth: int = setting(3, "the most tokens drafted after the root", low=1, high=16, step=1)
    draft_nodes: int = setting(15, "the most drafted nodes, not counting the root", low=1, high=128, step=1)


METHOD = Method(
    title="N-grams of the text",
    mark="n",
    colour=Colour("#566B00", "#B9CC5A", "#F2F5E1", "#3E4D00"),  # olive
    help="drafts what followed the same token earlier in the text; no weights, for every model",
    build=f"{__name__}:NgramDrafter",
    joins="n-grams",
    settings=Settings,
    design="It counts n-grams of the text, on the host: no matrix product.",
    drafting=Drafting(
        reads=("the root",),
        who="a table of the text’s sequences",
        words=(
            "It looks the root up in a table of all short sequences of the text.",
            "One look into the table in a step: no network is asked.",
            "The most frequent sequences that begin with the root become the branches of the tree.",
        ),
    ),
)


class NgramDrafter(Drafter):
    """Counts every n-gram of the text so far and drafts those that start with the root."""

    def __init__(self, target: Target, draft: Draft | None, settings: Settings) -> None:
        self.largest_tree = settings.draft_nodes + 1
        self._target = target
        self._settings = settings
        self._table = NgramTable(settings.draft_depth)

    @property
    def length(self) -> int:
        return self._table.length

    def propose(self, root: int, depth: int) -> TokenTree:
        """The most frequent n-grams that start with ``root``, merged where they begin alike."""
        found = self._table.tree(root, depth, self._settings.draft_top_k, self.largest_tree)
        drafted, origins = found[1:], [ROOT]
        for node in drafted:
            back = self._table.length - node.latest
            note = _note(node.count, back)
            origins.append(Origin(_NAME, rank=node.rank, label=f"×{node.count}", note=note, back=back))
        return self._target.token_tree(
            [node.token for node in found],
            [node.parent for node in found],
            origins,
            [1.0, *(node.count / found[node.parent].count for node in drafted)],
        )

    def observe(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        self._table.extend(tokens)

    def truncate(self, length: int) -> None:
        self._table.truncate(length)


def _note(count: int, back: int) -> str:
    times = "once" if count == 1 else f"{count} times"
    return f"followed the root {times} in the text so far, last {back} tokens earlier"
