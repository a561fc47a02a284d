"""Suffix decoding: drafts the likeliest continuations by how often the text's own endings went on so.

No weights, so it works with every model; it pays where a text repeats itself. A suffix automaton of the
prompt and the output knows for every substring how often it stands there and what followed it. The longest
endings of the text that stood there before say what comes next, a longer one with more weight, and the
likeliest paths make the tree. In the manner of SuffixDecoding (Oliaro et al., 2024, arXiv 2411.04975), which
keeps suffix trees of earlier answers too and takes the counts of one ending alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa_core.config import setting
from medusa_core.drafters import Colour, Drafting, Method


@dataclass(frozen=True)
class Settings:
    """How large a tree is, and how unlikely its least likely node."""

    draft_nodes: int = setting(32, "the most drafted nodes, not counting the root", low=1, high=128, step=1)
    suffix_depth: int = setting(24, "the most tokens on a path", low=1, high=64, step=1)
    suffix_least: float = setting(
        0.05, "a path is drafted while its share of the text's continuations is at least this",
        low=0.01, high=1.0, step=0.01,
    )  # fmt: skip


METHOD = Method(
    title="Suffix decoding",
    mark="s",
    colour=Colour("#32409A", "#8E9BFF", "#ECEEF8", "#222C6E"),  # indigo
    help="drafts what followed the text's longest known endings, the most frequent first; no weights",
    build=f"{__name__}.drafter:SuffixDrafter",
    settings=Settings,
    design="It walks an automaton of the text, on the host: no matrix product.",
    drafting=Drafting(
        reads=("the last tokens of the text",),
        who="a record of all its endings",
        words=(
            "It looks for the longest endings of the text that stood there before.",
            "One walk through the record in a step: no network is asked.",
            "What followed them there is guessed here, the most frequent first; where the text went on in "
            "several ways, the draft branches.",
        ),
    ),
    joins="suffix",
)
