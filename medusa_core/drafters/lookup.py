"""Looks the text's last tokens up in the text so far, and drafts what followed them there: a chain.

No weights, so it works with every model; it pays where a text quotes itself, as in summaries, edits and code.
Known as prompt lookup (Saxena, 2023; transformers' ``prompt_lookup_num_tokens``), which copies from the first
match and stops where the text ends. Here the latest match counts, and a copy that meets the end of the text
goes on with what it has copied: on the page's prompts each change keeps more tokens a step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa_core.config import setting
from medusa_core.drafters import Colour, Draft, Drafter, Drafting, Method
from medusa_core.errors import counted
from medusa_core.trees.origin import ROOT, Origin

if TYPE_CHECKING:
    import torch

    from medusa_core.model.target import Target
    from medusa_core.trees.token_tree import TokenTree

_NAME = __name__.rpartition(".")[2]
_PLACES = 64  # a token's share is counted over the latest so many earlier places


@dataclass(frozen=True)
class Settings:
    """How much has to agree, and how much is drafted then."""

    lookup_ngram: int = setting(3, "the most tokens looked up in the text", low=1, high=8, step=1)
    lookup_tokens: int = setting(10, "the most tokens drafted after a match", low=1, high=64, step=1)


METHOD = Method(
    title="Prompt lookup",
    mark="l",
    colour=Colour("#00687A", "#5FC4D6", "#E6F4F6", "#004A57"),  # teal
    help="drafts what followed the same last tokens most recently in the text; no weights, for every model",
    build=f"{__name__}:LookupDrafter",
    settings=Settings,
    design="It looks tokens up in the text, on the host: no matrix product.",
    drafting=Drafting(
        reads=("the last tokens of the text",),
        who="a search in the text",
        words=(
            "It looks for the last tokens of the text in the text before them, the longest match first.",
            "One search in a step: no network is asked.",
            "It copies on: what followed the match there is guessed here, token after token.",
        ),
    ),
    joins="lookup",
)


class LookupDrafter(Drafter):
    """Keeps the places of every n-gram of the text and copies on from the latest one that matches."""

    def __init__(self, target: Target, draft: Draft | None, settings: Settings) -> None:
        self.largest_tree = settings.lookup_tokens + 1
        self._target = target
        self._settings = settings
        self._tokens: list[int] = []
        # Per n-gram of 1 to lookup_ngram tokens, the lengths of the text at its ends, in rising order.
        self._ends: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)

    @property
    def length(self) -> int:
        return len(self._tokens)

    def propose(self, root: int, depth: int) -> TokenTree:
        """A chain: what followed the longest n-gram that ends with ``root`` and stood in the text before."""
        text = [*self._tokens, root]
        size, ends = self._match(text)
        count = min(depth, self._settings.lookup_tokens) if ends else 0
        drafted = [_copied(text, ends[-1], place) for place in range(count)]
        after = f"after the same {counted(size, 'token')}" if size > 1 else "after the same token"
        distance = len(text) - ends[-1] if ends else 0
        # A copy that has passed the end of the text repeats itself, so its source lies further back.
        origins = [
            Origin(
                _NAME,
                label=f"−{distance}",
                note=f"found {counted(distance, 'token')} earlier, {after}",
                back=distance * (1 + place // distance),
            )
            for place in range(count)
        ]
        return self._target.token_tree(
            [root, *drafted],
            list(range(-1, len(drafted))),
            [ROOT, *origins],
            [1.0, *_shares(text, ends[-_PLACES:], drafted)],
        )

    def observe(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        """Note the n-grams that the tokens complete."""
        first = len(self._tokens) + 1
        self._tokens += tokens
        for end in range(first, len(self._tokens) + 1):
            for ngram in self._ngrams(self._tokens, end):
                self._ends[ngram].append(end)

    def truncate(self, length: int) -> None:
        """Forget the n-grams that end after ``length`` tokens."""
        for end in range(len(self._tokens), length, -1):
            for ngram in self._ngrams(self._tokens, end):
                self._ends[ngram].pop()
                if not self._ends[ngram]:
                    del self._ends[ngram]
        del self._tokens[length:]

    def _match(self, text: list[int]) -> tuple[int, list[int]]:
        """Size of the longest n-gram at the end of ``text`` that was noted, and its ends; 0 and none."""
        for ngram in reversed(self._ngrams(text, len(text))):
            if ends := self._ends.get(ngram):
                return len(ngram), ends
        return 0, []

    def _ngrams(self, text: list[int], end: int) -> list[tuple[int, ...]]:
        """The n-grams of ``text`` that end before place ``end``, the shortest first."""
        longest = min(self._settings.lookup_ngram, end)
        return [tuple(text[end - size : end]) for size in range(1, longest + 1)]


def _copied(text: list[int], start: int, place: int) -> int:
    """The token ``place`` tokens behind ``start``; where the text ends, it goes on with what was copied."""
    return text[start + place % (len(text) - start)]


def _shares(text: list[int], ends: list[int], drafted: list[int]) -> list[float]:
    """For each drafted token, the share of the places like the draft so far that go on with it."""
    shares, alike = [], ends
    for place, token in enumerate(drafted):
        before, alike = alike, [end for end in alike if _copied(text, end, place) == token]
        shares.append(len(alike) / len(before))
    return shares
