"""Models whose next token depends only on the last two, by a table: a forward costs one look-up.

For counting thousands of runs of the real loop: text and tree are handled as for a real target, and the exact
probability of a text is a product of entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import chi_square
import numpy as np
import plain_penalty
import torch
from torch.nn.functional import one_hot

from medusa_core.drafters.draft_model.draft import ModelDraft
from medusa_core.drafters.medusa.draft import MedusaDraft
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.model.features import NO_FEATURES
from medusa_core.trees.token_tree import TokenTree

V = 5
HEADS = 3
TEMPERATURE = 1.2
PROMPT = [1, 2, 0, 1, 2, 3, 1, 2, 4, 1, 2]  # with n-grams that come again


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
    """Logits of the next token from ``table`` [V, V, V] by the last two tokens; states [2 V] name them."""

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
        return self.table[tuple(cache.tokens[-2:])], self._states(cache.tokens[-2:-1], cache.tokens[-1:])

    def verify(self, tree, cache, features=NO_FEATURES):
        tokens = cache.written = tree.tokens.tolist()
        before = [tokens[parent] if parent >= 0 else cache.tokens[-1] for parent in tree.parents]
        return self.table[before, tokens], self._states(before, tokens)

    def _states(self, *tokens):
        return torch.cat([one_hot(torch.tensor(ids), self.vocab_size) for ids in tokens], dim=1).float()

    def prefill_all(self, texts, caches, features=NO_FEATURES):
        return [self.prefill(*one, features) for one in zip(texts, caches, strict=True)]

    def verify_all(self, trees, caches, features=NO_FEATURES):
        return [self.verify(*one, features) for one in zip(trees, caches, strict=True)]


def tables() -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of a target and of a draft model that partly agrees with it."""
    target, noise = torch.randn(2, V, V, V, generator=torch.Generator().manual_seed(0)) * 1.2
    return target, 0.6 * target + 0.8 * noise


def counted(runs: int, **settings: Any) -> tuple[np.ndarray, int]:
    """What `chi_square.counted` finds with these settings; there is a draft model, and there are heads."""
    target, small = map(TableTarget, tables())
    last = torch.randn(HEADS, V, 2 * V, generator=torch.Generator().manual_seed(5))
    heads = MedusaHeads(torch.zeros(HEADS, 1, 2 * V, 2 * V), torch.zeros(HEADS, 1, 2 * V), last)
    drafts = {"draft_model": ModelDraft(small), "medusa": MedusaDraft(heads)}
    return chi_square.counted(target, drafts, PROMPT, runs, **{"temperature": TEMPERATURE} | settings)


def wanted(
    temperature: float = TEMPERATURE, *, penalty: float = 1.0, penalty_window: int = 0, **truncation: Any
) -> np.ndarray:
    """Exact probabilities of three new tokens [V, V, V], the settings obeyed the slow way."""
    table = tables()[0]

    def next_p(text):
        logits = plain_penalty.penalised(table[text[-2], text[-1]], text, penalty, penalty_window)
        logits = plain_penalty.truncated(logits, temperature, **truncation)
        return (logits.double() / temperature).softmax(dim=-1)

    return chi_square.joint(next_p, PROMPT, V)
