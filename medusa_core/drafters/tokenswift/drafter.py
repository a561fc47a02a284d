"""TokenSwift's drafter: one forward of the model over a part of the cache, heads behind it, and n-grams.

A step costs two forwards of the model: this one reads one row and a fixed number of keys, the verification
reads the whole tree and the whole text. What the first sees changes how often guesses are right, and never
what is said. Paper §2.2 and §2.3.

B texts · N nodes · V vocabulary · d hidden size
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import torch

from medusa_core.drafters import Drafter
from medusa_core.drafters._guess_tree import Guesses, GuessTree
from medusa_core.drafters._ngram_table import FoundNode, NgramTable
from medusa_core.drafters.tokenswift import NAME, Settings
from medusa_core.drafters.tokenswift.draft import UNNORMED, TokenSwiftDraft
from medusa_core.errors import MedusaError, counted
from medusa_core.model.features import NO_FEATURES
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.partial_cache import PartialCache
from medusa_core.model.target import Target
from medusa_core.trees.origin import ROOT, Origin
from medusa_core.trees.token_tree import TokenTree, union
from medusa_core.trees.tree import TOP_K


class TokenSwiftDrafter(Drafter):
    """Drafts over the cache of its run (``read_cache``), or over the rows of it that matter most."""

    def __init__(self, target: Target, draft: TokenSwiftDraft, settings: Settings) -> None:
        """Raises MedusaError when the tree asks for more than the model and its heads offer."""
        tree = draft.tree(settings.tree)
        if max(tree.depths) > draft.depth:
            raise MedusaError(
                f"the tree is {max(tree.depths)} deep, the model and {counted(draft.count, 'head')} guess "
                f"{draft.depth} tokens: use a shallower tree"
            )
        tree.check(draft.depth, min(TOP_K, target.vocab_size))
        # An n-gram is as long as a path of guesses; of its tokens the first is the model's guess.
        self._following = draft.count
        self._ngrams = settings.draft_ngrams
        self.largest_tree = tree.size + self._ngrams * self._following
        # The queries choose the rows, where a text can be longer than what a draft sees.
        self.features = replace(NO_FEATURES, queries=settings.draft_budget < target.context)
        self._target = target
        self._heads = draft.heads
        self._guessed = GuessTree(tree, _guess, target.device)
        self._table = NgramTable(self._following)
        self._partial = PartialCache(target, settings.draft_budget, settings.draft_sinks)
        self._full: TreeCache | None = None
        self._queries: torch.Tensor  # queries of the last accepted token, [L·H·D]

    @property
    def length(self) -> int:
        return self._table.length

    @property
    def cache_bytes(self) -> int:
        """Bytes of the rows that a draft sees, none while it sees the run's own."""
        return self._partial.nbytes

    def cache_bytes_for(self, rows: int) -> int:
        return self._partial.nbytes_for(rows)

    def read_cache(self, cache: TreeCache) -> None:
        if cache is not self._full:
            self._partial.forget(0)
        self._full = cache

    def observe(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        """Count the n-grams that the tokens complete; ``features`` [1, L·H·D]: the last queries."""
        self._table.extend(tokens)
        self._queries = features[-1]

    def truncate(self, length: int) -> None:
        self._table.truncate(length)
        self._partial.forget(length)

    def propose(self, root: int, depth: int) -> TokenTree:
        """The guesses of the model and its heads, and the n-grams that begin as they do."""
        return self.propose_all([self], [root], [depth])[0]

    def propose_all(
        self, drafters: Sequence[Self], roots: Sequence[int], depths: Sequence[int]
    ) -> list[TokenTree]:
        """Trees of several runs with these heads, made by one forward of the model for all."""
        alone = [self._target.token_tree([root], [-1], [ROOT]) for root in roots]
        asked = min(max(depths), self._guessed.depth)
        if asked < 1:  # the context ends: there is room for the root and for no guess
            return alone
        caches = [drafter._drafted_over() for drafter in drafters]
        read = self._target.verify_all(alone, caches, UNNORMED)
        own = torch.stack([logits[0] for logits, _ in read])  # [B, V]
        hidden = torch.stack([states[0] for _, states in read]).to(self._heads.linear)  # [B, d]
        guesses = self._heads(hidden, asked - 1)  # [asked - 1, B, V]
        logits = torch.cat([own[None].float(), guesses.float()])
        trees = self._guessed.filled(roots, depths, Guesses.of(logits, self._guessed.ranks))
        trees = [
            drafter._with_rows_seen(tree, over)
            for drafter, tree, over in zip(drafters, trees, caches, strict=True)
        ]
        if not self._ngrams:
            return trees
        firsts = own.argmax(dim=-1).tolist()
        return [
            drafter._with_ngrams(tree, first, depth)
            for drafter, tree, first, depth in zip(drafters, trees, firsts, depths, strict=True)
        ]

    def _drafted_over(self) -> TreeCache:
        assert self._full is not None  # set by ``read_cache``
        return self._partial.over(self._full, self._queries)

    def _with_rows_seen(self, tree: TokenTree, over: TreeCache) -> TokenTree:
        """The tree with a note of the rows that the model's own guesses have seen, where they are not all."""
        if over is self._full:
            return tree
        seen = f"{over.length} rows of the text in sight"
        levels = zip(tree.origins, tree.depths, strict=True)
        own = [_guess(1, origin.rank or 0, seen) if depth == 1 else origin for origin, depth in levels]
        return replace(tree, origins=own, drafter_rows=self._partial.ranges)

    def _with_ngrams(self, tree: TokenTree, first: int, depth: int) -> TokenTree:
        """The tree and the most frequent n-grams that begin with ``first``, the model's best guess."""
        if depth < 2:
            return tree
        found = self._table.tree(first, depth - 1, self._ngrams, self._ngrams * self._following + 1)
        if len(found) < 2:  # nothing followed it
            return tree
        # The guess itself stands one place behind the end of the text.
        backs = [self._table.length + 1 - node.latest for node in found]
        copied = self._target.token_tree(
            [int(tree.tokens[0]), *(node.token for node in found)],
            [-1, *(node.parent + 1 for node in found)],
            [ROOT, _guess(1, 0), *(_copied(*one) for one in zip(found[1:], backs[1:], strict=True))],
            [1.0, 1.0, *(node.count / found[node.parent].count for node in found[1:])],
        )
        return union([tree, copied])


def _guess(depth: int, rank: int, seen: str = "the whole text in sight") -> Origin:
    """Where a guess comes from: at depth 1 from the model, below from one head after the other."""
    note = (
        f"the model’s own guess {rank + 1} behind the root, with {seen}"
        if depth == 1
        else f"guess {rank + 1} of head {depth - 1}, which goes on from the hidden state before it"
    )
    return Origin(NAME, rank=rank, label=f"h{depth - 1} #{rank + 1}", note=note)


def _copied(node: FoundNode, back: int) -> Origin:
    """Where a token of an n-gram comes from."""
    times = "once" if node.count == 1 else f"{node.count} times"
    note = f"in an n-gram that begins with the first guess, found {times}, last {back} tokens earlier"
    return Origin(NAME, rank=node.rank, label=f"×{node.count}", note=note, back=back)
