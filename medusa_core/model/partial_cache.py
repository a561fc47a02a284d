"""A part of a run's key-value cache that drafts are made over: its size is fixed, however long the text gets.

Of each layer and key-value head it holds the first rows of the text, which attention needs as a sink, and the
rows whose keys have the largest product with the last accepted token's queries, summed over the query heads
of a group. Rows that are accepted later overwrite the least important ones; when they no longer fit, the rows
are selected anew. A forward takes it as any other cache. TokenSwift paper §2.3, equation 2.

L layers · H query heads · G key-value heads · D head size · S rows of the text · B rows at most
"""

from __future__ import annotations

import torch

from medusa_core.errors import MedusaError
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.masks import SLIDING
from medusa_core.model.target import Target


class PartialCache:
    """The rows of one run's cache that a draft sees; texts that fit are read from that cache itself."""

    def __init__(self, target: Target, budget: int, sinks: int) -> None:
        """``budget`` is B, without the row that is drafted from; ``sinks`` of them are the text's first.

        Raises MedusaError when the sinks leave no room for others.
        """
        if sinks >= budget:
            raise MedusaError(
                f"a draft sees {budget} rows and the first {sinks} of the text are always among them, which "
                "leaves none to choose: lower --draft-sinks or raise --draft-budget"
            )
        self.budget, self.sinks = budget, sinks
        self._target = target
        window = target.masks.window
        # Rows that a sliding layer no longer sees are no use to it.
        self._windows = [window if kind == SLIDING else None for kind in target.layer_kinds]
        self._cache: TreeCache | None = None
        self._selected = self._taken = 0  # rows of the text: at the last selection, and copied by now
        self._held = torch.empty(0, 0, dtype=torch.long)  # [L·G, B]: the text's rows that each head has

    @property
    def nbytes(self) -> int:
        return 0 if self._cache is None else self._cache.nbytes

    def nbytes_for(self, rows: int) -> int:
        """Bytes that its rows take after a text of so many rows."""
        return self._target.cache_bytes(self.budget + 1) if rows > self.budget else 0

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The rows of the text that at least one head of one layer has, as rising ranges [start, end)."""
        seen = torch.zeros(self._taken + 2, dtype=torch.int8)
        seen[self._held.flatten() + 1] = 1
        edges = seen.diff().nonzero()[:, 0].tolist()
        return list(zip(edges[::2], edges[1::2], strict=True))

    def forget(self, length: int) -> None:
        """Forget the rows of the text from ``length`` on, which have changed."""
        if length < self._taken:
            self._selected = self._taken = 0

    def over(self, full: TreeCache, queries: torch.Tensor) -> TreeCache:
        """The cache to draft over after the rows of ``full``; ``queries`` [L·H·D] are those of the last one.

        A cache that drops what fell out of every layer's window is read as it is: it does not grow.
        Raises MedusaError for a model whose layers have heads of several sizes.
        """
        if full.length <= self.budget or full.bounded:
            return full
        if self._cache is None:
            self._cache = self._target.new_cache(self.budget + 1)
        new = full.length - self._selected
        if not self._taken or new > self.budget - self.sinks:
            self._select(self._cache, full, queries)
        elif full.length > self._taken:
            self._follow(self._cache, full, new)
        self._taken = full.length
        self._cache.left_out = full.length - self._cache.length
        return self._cache

    def _select(self, cache: TreeCache, full: TreeCache, queries: torch.Tensor) -> None:
        heads = self._target.config.num_attention_heads
        by_layer = queries.view(len(full.tree_layers), heads, -1)
        held: list[torch.Tensor] = []
        for own, its, query, window in zip(
            cache.tree_layers, full.tree_layers, by_layer, self._windows, strict=True
        ):
            if not its.is_initialized:  # it reads the keys of another layer
                continue
            keys = its.keys[0, :, : full.length]
            if keys.shape[-1] != query.shape[-1]:
                raise MedusaError(
                    f"the layers of {self._target.config.model_type} have heads of several sizes, so its "
                    "rows cannot be weighed: use another --method"
                )
            rows = most_important(query.to(keys.device), keys, self.budget, self.sinks, window)
            own.take(its, rows, 0)
            held.append(rows.cpu())
        cache.truncate(0)
        cache.commit(range(self.budget))
        self._selected = full.length
        self._held = torch.cat(held)

    def _follow(self, cache: TreeCache, full: TreeCache, new: int) -> None:
        """Let the rows that came after the last selection, ``new`` by now, replace the last ones."""
        start = self.budget - new
        came = torch.arange(self._taken, full.length)
        self._held[:, start : start + len(came)] = came
        for own, its in zip(cache.tree_layers, full.tree_layers, strict=True):
            if its.is_initialized:
                rows = torch.arange(self._taken, full.length, device=its.keys.device)
                own.take(its, rows.expand(its.keys.shape[1], -1), start)


def most_important(
    queries: torch.Tensor, keys: torch.Tensor, count: int, sinks: int, window: int | None = None
) -> torch.Tensor:
    """``count`` rows [G, count] of keys [G, S, D] for queries [H, D]: the first ``sinks``, then the best.

    The products are neither scaled nor normalised. Rows a ``window`` or more behind come last.
    """
    heads, length = keys.shape[:2]
    # A sum of products with one key is the product with the sum.
    summed = queries.float().view(heads, -1, queries.shape[-1]).sum(dim=1)
    scores = torch.bmm(keys.float(), summed[..., None])[..., 0]  # [G, S]
    if window is not None and window < length:
        scores[:, : length - window] = -torch.inf
    best = scores[:, sinks:].topk(count - sinks, dim=-1).indices + sinks
    return torch.cat([torch.arange(sinks, device=keys.device).expand(heads, -1), best], dim=-1)
