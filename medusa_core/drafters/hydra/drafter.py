"""Hydra's drafter: a tree of fixed shape that the heads fill level by level.

Head k runs once on all paths of its level together: the last accepted hidden state, or the prefix layer's
output for it, beside the embeddings of the path's tokens. Node (r1, …, rk) holds guess number rk of head k
after the tokens of (r1, …, rk−1). Paper §3.

N nodes · P paths of a level that go on · d hidden size
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from medusa_core.drafters import Drafter
from medusa_core.drafters._guess_tree import unfilled
from medusa_core.drafters._head_trees import TreeSettings
from medusa_core.drafters.hydra import NAME
from medusa_core.drafters.hydra.draft import HydraDraft
from medusa_core.errors import counted
from medusa_core.model.features import LAST_HIDDEN, Features
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.target import PREFILL_CHUNK, Target
from medusa_core.trees.origin import Origin
from medusa_core.trees.token_tree import TokenTree
from medusa_core.trees.tree import TOP_K, Topology


@dataclass(frozen=True)
class _Level:
    """The nodes of one depth, on the device: the path that each follows, and the guess that it holds."""

    path: torch.Tensor  # [nodes], row of the head's input
    rank: torch.Tensor  # [nodes]
    top: int  # guesses asked of the head
    goes_on: torch.Tensor  # [P], the nodes that have children


class HydraDrafter(Drafter):
    """Fills a fixed tree with the heads' guesses, each made from the tokens above it."""

    def __init__(self, target: Target, draft: HydraDraft, settings: TreeSettings) -> None:
        """Raises MedusaError when the tree asks for more than the heads offer."""
        heads, tree = draft.fast, draft.tree(settings.tree)
        tree.check(heads.count, min(TOP_K, heads.vocabulary))
        self.largest_tree = tree.size
        # The prefix layer reads every row of the text, the heads alone the last one.
        self.features = LAST_HIDDEN if heads.prefix is None else Features(LAST_HIDDEN.layers, all_rows=True)
        self._heads = heads
        self._embed = target.held.weights.get_input_embeddings()
        self._ids_device, self._device = target.device, target.output_device
        self._tree = tree
        self._cache = TreeCache(1, 0)
        self._trees: dict[int, TokenTree] = {}  # by depth, without their guesses
        self._levels = _levels(tree, self._device)
        self._hidden: torch.Tensor  # hidden state of the last accepted token

    @property
    def cache_bytes(self) -> int:
        return self._cache.nbytes

    def cache_bytes_for(self, rows: int) -> int:
        return self._heads.prefix.row_bytes * rows if self._heads.prefix is not None else 0

    def reserve(self, rows: int) -> None:
        self._cache.reserve(rows)

    @property
    def length(self) -> int:
        """Rows that the prefix layer has read, 0 without one."""
        return self._cache.length

    def observe(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        """Read the hidden states of the tokens, or of the last one; ``features`` is [A, d]."""
        self._hidden = features[-1].to(self._device)
        if self._heads.prefix is not None:
            for rows in features.to(self._device).split(PREFILL_CHUNK):
                self._heads.prefix.read(rows, self._cache)

    def truncate(self, length: int) -> None:
        """Forget the rows after ``length``; ``begin`` brings the hidden state to go on from."""
        self._cache.truncate(length)

    def propose(self, root: int, depth: int) -> TokenTree:
        """The tree, each level filled by one call of its head."""
        depth = min(depth, len(self._levels))
        if depth not in self._trees:
            self._trees[depth] = unfilled(self._tree.limited(depth), _origin, self._ids_device)
        tokens = [torch.tensor([root], device=self._device)]
        logp = [torch.zeros(1, dtype=torch.float32, device=self._device)]
        prefix = self._heads.prefix
        state = self._hidden if prefix is None else prefix.last(self._hidden, self._cache)  # [d]
        paths = torch.cat([state, self._embedded(tokens[0])[0]])[None]
        for number, level in enumerate(self._levels[:depth]):
            logits = self._heads(number, paths).float()  # [P, V]
            values, guesses = logits.topk(level.top, dim=-1)
            values = values - logits.logsumexp(dim=-1, keepdim=True)
            tokens.append(guesses[level.path, level.rank])
            logp.append(values[level.path, level.rank])
            if number + 1 < depth:
                drafted = self._embedded(tokens[-1][level.goes_on])
                paths = torch.cat([paths[level.path[level.goes_on]], drafted], dim=-1)
        tree_tokens = torch.cat(tokens).to(self._ids_device)
        return replace(self._trees[depth], tokens=tree_tokens, draft_logp=torch.cat(logp))

    def _embedded(self, tokens: torch.Tensor) -> torch.Tensor:
        """The target's embeddings of tokens [T]: [T, d], where the heads are."""
        return self._embed(tokens.to(self._ids_device)).to(self._device)


def _levels(topology: Topology, device: torch.device) -> list[_Level]:
    """The levels below the root. A head's input has a row for each node above it that has children."""
    inner = set(topology.parents)
    levels = []
    above = [0]  # nodes that the rows of the head's input stand for
    for depth in range(1, max(topology.depths) + 1):
        nodes = [node for node in range(topology.size) if topology.depths[node] == depth]
        row_of = {node: row for row, node in enumerate(above)}
        ranks = [topology.ranks[node] for node in nodes]
        levels.append(
            _Level(
                torch.tensor([row_of[topology.parents[node]] for node in nodes], device=device),
                torch.tensor(ranks, device=device),
                max(ranks) + 1,
                torch.tensor(
                    [place for place, node in enumerate(nodes) if node in inner],
                    dtype=torch.long,
                    device=device,
                ),
            )
        )
        above = [node for node in nodes if node in inner]
    return levels


def _origin(head: int, rank: int) -> Origin:
    path = f", the root and the {counted(head - 1, 'token')} drafted on this path"
    rest = " and the root" if head == 1 else path
    return Origin(NAME, head, rank, note=f"by reading the last kept hidden state{rest}")
