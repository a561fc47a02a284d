"""Runs the small model ahead of the target, in a key-value cache of its own that follows each verdict.

The root belongs to the text whatever the verdict, so its row is committed at once, and so is a chain's as it
grows. Several branches are read level by level. Of a cache's rows, only those written last can be kept or
dropped one by one, so each level's forward writes the whole tree so far, and after the verdict the accepted
path's rows are committed from the last of these writes.

N nodes · T tokens of the text · V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch

from medusa_core.acceptance.sampling import Sampling
from medusa_core.drafters import Drafter
from medusa_core.drafters.draft_model import NAME
from medusa_core.drafters.draft_model.draft import ModelDraft
from medusa_core.drafters.draft_model.growth import Growth
from medusa_core.drafters.eagle3 import Settings
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.target import Target
from medusa_core.trees.origin import ROOT, Origin
from medusa_core.trees.token_tree import TokenTree
from medusa_core.trees.tree import depths_of

_SHORT = 8  # so many tokens of the text are read as a tree, by a forward that a GPU has captured


class ModelDrafter(Drafter):
    """Drafts with ``model``; draws its guesses where the run's rule asks for that (``sample_by``)."""

    def __init__(self, target: Target, draft: ModelDraft, settings: Settings) -> None:
        self._target = target
        self._model = model = draft.model
        self._settings = settings
        self._rows = model.vocab_size
        self._known = min(model.vocab_size, target.vocab_size)  # tokens that both have
        self._sampling: Sampling | None = None
        self._tokens: list[int] = []
        self._cache: TreeCache | None = None
        self._growth: Growth | None = None  # the last tree
        # That tree's nodes with a row in the cache. The committed rows are those of one path from the root;
        # the rows of the last write follow and are not committed.
        self._committed: list[int] = []
        self._uncommitted: list[int] = []
        depth, branches = settings.draft_depth, settings.draft_top_k
        most = branches + (depth - 1) * branches**2
        self.largest_tree = min(settings.draft_nodes, most) + 1

    @property
    def length(self) -> int:
        return len(self._tokens)

    @property
    def cache_bytes(self) -> int:
        return self._cache.nbytes if self._cache is not None else 0

    def cache_bytes_for(self, rows: int) -> int:
        return self._model.cache_bytes(self._slots(rows))

    def reserve(self, rows: int) -> None:
        slots = self._slots(rows)
        if self._cache is None:
            self._cache = self._model.new_cache(slots)
        else:
            self._cache.reserve(slots)

    def sample_by(self, sampling: Sampling | None) -> None:
        self._sampling = sampling

    def propose(self, root: int, depth: int) -> TokenTree:
        """A chain or a tree of the small model's guesses, as deep as both contexts allow."""
        depth = min(depth, self._settings.draft_depth, self._model.context - len(self._tokens))
        self._growth, self._committed, self._uncommitted = None, [], []
        if depth <= 0:
            return self._target.token_tree([root], [-1], [ROOT])
        growth = self._growth = Growth(
            [root], self._settings.draft_top_k, self.largest_tree - 1, self._sampling
        )
        growth.expand([0], self._read_root(root)[None])
        self._committed = [0]
        for _ in range(depth - 1):
            nodes = growth.next_nodes()
            if not nodes:
                break
            growth.expand(nodes, self._read_nodes(growth, nodes))
        return self._tree(growth)

    def observe(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        """Keep the rows of the tokens that were read, and forget the others; the prompt is read later."""
        if self._growth is not None and self._cache is not None:
            path = [0]  # nodes of its own tree that were accepted, the root first
            for token in tokens[1:]:
                node = self._growth.children.get((path[-1], token))
                if node is None:
                    break
                path.append(node)
            same = sum(node in path for node in self._committed)
            if same < len(self._committed):
                self._cache.truncate(len(self._tokens) + same)
            elif rows := [self._uncommitted.index(node) for node in path[same:] if node in self._uncommitted]:
                self._cache.commit(rows)
        self._growth, self._committed, self._uncommitted = None, [], []
        self._tokens += tokens

    def truncate(self, length: int) -> None:
        """Forget the text after ``length`` tokens, and a root whose step never ended."""
        del self._tokens[length:]
        self._growth, self._committed, self._uncommitted = None, [], []
        if self._cache is not None:
            self._cache.truncate(len(self._tokens))

    def _read_root(self, root: int) -> torch.Tensor:
        """Read the text that the cache lacks, and the root; return the logits [V] after it."""
        cache = cast("TreeCache", self._cache)
        # Numbers beyond its table are rows with which the target pads its own; no text has them.
        tokens = [min(token, self._rows - 1) for token in (*self._tokens[cache.length :], root)]
        if len(tokens) > _SHORT:
            return self._model.prefill(tokens, cache)[0][: self._known]
        tree = self._model.token_tree(tokens, range(-1, len(tokens) - 1), [ROOT] * len(tokens))
        logits, _ = self._model.verify(tree, cache)
        cache.commit(range(len(tokens)))
        return logits[-1, : self._known]

    def _read_nodes(self, growth: Growth, nodes: list[int]) -> torch.Tensor:
        """The logits [R, V] after each of ``nodes``, which are the next level."""
        cache = cast("TreeCache", self._cache)
        self._uncommitted += nodes
        places = {node: place for place, node in enumerate(self._uncommitted)}
        parents = [places.get(growth.parents[node], -1) for node in self._uncommitted]
        tree = self._model.token_tree(
            [growth.tokens[node] for node in self._uncommitted], parents, [ROOT] * len(parents)
        )
        logits, _ = self._model.verify(tree, cache)
        if len(self._uncommitted) == 1:  # the next node of a chain, the only one that can be accepted here
            cache.commit([0])
            self._committed += self._uncommitted
            self._uncommitted = []
        return logits[-len(nodes) :, : self._known]

    def _slots(self, rows: int) -> int:
        """Slots for a text of so many rows, no more than the model's context, and for a tree behind it."""
        settings = self._settings
        return min(rows, self._model.context) + 1 + settings.draft_top_k * settings.draft_depth

    def _tree(self, growth: Growth) -> TokenTree:
        kept = growth.kept()
        places = {node: place for place, node in enumerate(kept)}
        parents = [places.get(growth.parents[node], -1) for node in kept]
        below = zip(kept[1:], depths_of(parents)[1:], strict=True)
        probs = None
        if growth.drawn_from:
            probs = growth.drawn_from[0].new_zeros(len(kept), self._target.vocab_size)
            for node, drawn in growth.drawn_from.items():
                probs[places[node], : self._known] = drawn
        logp = [growth.logp[node] for node in kept]
        tree = TokenTree.from_lists(
            [growth.tokens[node] for node in kept],
            parents,
            [ROOT, *(_origin(growth, *place) for place in below)],
            device=self._target.device,
            draft_logp=torch.tensor(logp, dtype=torch.float32, device=self._target.output_device),
        )
        return replace(tree, draft_probs=probs)


def _origin(growth: Growth, node: int, depth: int) -> Origin:
    # q is kept apart from it, so that the origins of a tree of one shape are the same in every step.
    rank, kind = growth.ranks[node], "guess" if growth.sampling is None else "draw"
    note = f"the draft model’s {_ordinal(depth)} token, its {kind} {rank + 1}"
    return Origin(NAME, rank=rank, label=f"#{rank + 1}", note=note)


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number in (11, 12, 13) else ending}"
