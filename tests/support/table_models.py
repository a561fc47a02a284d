"""Targets whose next token depends only on the last two, by a table: a forward costs one look-up.

For counting thousands of runs of the real loop: text and tree are handled as for a real target, and the exact
probability of a text is a product of entries.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from medusa_core.model.features import NO_FEATURES
from medusa_core.trees.token_tree import TokenTree


class TextCache:
    """Stands in for a key-value cache: the tokens read so far, and those written last."""

    nbytes = 0

    def __init__(self, slots: int) -> None:
        self.tokens: list[int] = []
        self.written: list[int] = []
        self.slots = slots

    @property
    def length(self) -> int:
        return len(self.tokens)

    def commit(self, path: Sequence[int]) -> None:
        assert len(self.tokens) + len(self.written) <= self.slots
        self.tokens += [self.written[row] for row in path]
        self.written = []

    def truncate(self, length: int) -> None:
        del self.tokens[length:]

    def reserve(self, slots: int) -> None:
        self.slots = max(slots, self.slots)


class TableTarget:
    """Logits of the next token from ``table`` [V, V, V] by the last two tokens."""

    device = output_device = torch.device("cpu")
    dtype = torch.float32
    context = 64
    context_words = ""

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table
        self.vocab_size = len(table)

    def new_cache(self, slots: int) -> TextCache:
        return TextCache(slots)

    def token_tree(self, tokens, parents, origins, draft_p=None) -> TokenTree:
        return TokenTree.from_lists(list(tokens), list(parents), origins, draft_p)

    def prefill(self, tokens, cache, features=NO_FEATURES):
        cache.written = list(tokens)
        cache.commit(range(len(tokens)))
        return self.table[tuple(cache.tokens[-2:])], torch.empty(1, 0)

    def verify(self, tree, cache, features=NO_FEATURES):
        tokens = cache.written = tree.tokens.tolist()
        before = [tokens[parent] if parent >= 0 else cache.tokens[-1] for parent in tree.parents]
        return self.table[before, tokens], torch.empty(tree.size, 0)

    def prefill_all(self, texts, caches, features=NO_FEATURES):
        return [self.prefill(*one, features) for one in zip(texts, caches, strict=True)]

    def verify_all(self, trees, caches, features=NO_FEATURES):
        return [self.verify(*one, features) for one in zip(trees, caches, strict=True)]


def tables(vocabulary: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of a target and of a drafter that partly agrees with it."""
    generator = torch.Generator().manual_seed(seed)
    target, noise = torch.randn(2, vocabulary, vocabulary, vocabulary, generator=generator) * 1.2
    return target, 0.6 * target + 0.8 * noise
