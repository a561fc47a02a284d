"""A block drafter as it is loaded for a target, and what it does in a step.

Its cache holds keys and values that were made from the target's hidden states of the text; those of a block
are written behind them and forgotten.

T tokens · K rows of a block · d hidden size
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional as F

from medusa_core.drafters import Drafter
from medusa_core.drafters._dynamic_tree import DynamicTree
from medusa_core.drafters._guess_tree import Guesses
from medusa_core.drafters.block import NAME
from medusa_core.drafters.block.files import read
from medusa_core.drafters.block.model import BlockModel
from medusa_core.drafters.eagle3 import Settings
from medusa_core.drafters.eagle3.draft import LayerDraft, target_embedding
from medusa_core.drafters.eagle3.model import attention_by
from medusa_core.errors import MedusaError
from medusa_core.model.features import Features
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.target import Target
from medusa_core.trees.origin import Origin
from medusa_core.trees.token_tree import TokenTree


@dataclass(frozen=True)
class BlockDraft(LayerDraft):
    """A drafter's network."""

    model: BlockModel

    @property
    def label(self) -> str:
        return f"Block drafter of {self.model.block} tokens"


def load(folder: Path, target: Target) -> BlockDraft:
    """Read a drafter for a target. Raises MedusaError when it is damaged or does not fit."""
    head = target.held.lm_head().to(target.output_device, target.dtype)
    model, count = read(folder, head, target.dtype), target.config.num_hidden_layers
    layers = model.shape.layers or ()
    if not all(-1 <= layer <= count for layer in layers):
        raise MedusaError(
            f"the block drafter in {folder} reads hidden states {', '.join(map(str, layers))}, the model has "
            f"{count} layers: it belongs to another model"
        )
    return BlockDraft(model.requires_grad_(False).eval(), target_embedding(target))


class BlockDrafter(Drafter):
    """Drafts after a text of which it has read the hidden states of all tokens."""

    def __init__(self, target: Target, draft: BlockDraft, settings: Settings) -> None:
        model = draft.model
        assert model.shape.layers is not None
        self.largest_tree = settings.draft_nodes + 1
        depth, ranks = min(settings.draft_depth, model.block), min(settings.draft_top_k, len(draft.embedding))
        self._tree = DynamicTree(settings.draft_nodes, depth, ranks, _origin, target.device)
        self.features = Features(model.shape.layers, all_rows=True)
        self._model, self._rotary, self._embedding = model, draft.rotary, draft.embedding
        self._cache = TreeCache(len(model.layers), 0)
        self._last = draft.embedding.new_empty(model.shape.hidden)  # fused states of the last token

    @property
    def length(self) -> int:
        return self._cache.length

    @property
    def cache_bytes(self) -> int:
        return self._cache.nbytes

    def cache_bytes_for(self, rows: int) -> int:
        shape, layers = self._model.shape, len(self._model.layers)
        row = 2 * layers * shape.key_heads * shape.head_size * self._embedding.itemsize
        return row * (rows + self._model.block)

    def reserve(self, rows: int) -> None:
        self._rotary.prepare(rows + self._model.block)
        self._cache.reserve(rows + self._model.block)

    def observe(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        """Write the keys and values of tokens [A] by their hidden states [A, 3 d]; remember the last's."""
        fused = self._model.fuse(features.to(self._embedding))
        text = self._model.text(fused, self._rotary.at(self.length, len(fused)))
        for layer, parts in enumerate(text):
            key, value = (part.transpose(0, 1)[None] for part in parts)
            self._cache.update(key, value, layer)
        self._cache.commit(range(len(fused)))
        self._last = fused[-1]

    def truncate(self, length: int) -> None:
        self._cache.truncate(length)

    def propose(self, root: int, depth: int) -> TokenTree:
        """The likeliest combinations of the block's guesses below ``root``."""
        levels = min(depth, self._tree.depth)
        size = self._model.block
        embedded = F.embedding(torch.tensor(root, device=self._embedding.device), self._embedding)
        layers = range(len(self._model.layers))
        attends = [attention_by(partial(self._cache.update, layer_idx=layer)) for layer in layers]
        rows = self._model.rows(embedded, self._last)
        output = self._model.output(rows, self._rotary.at(self.length, size), attends)
        logits = self._model.logits(output[: max(1, levels)]).float()
        guesses = Guesses.of(logits[:, None], self._tree.ranks)
        return self._tree.filled([root], [levels], guesses)[0]


def _origin(level: int, rank: int) -> Origin:
    note = f"block drafter, place {level} of the block: guess {rank + 1}"
    return Origin(NAME, rank=rank, label=f"P{level} #{rank + 1}", note=note)
