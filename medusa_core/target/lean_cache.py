"""The key-value cache of the lean forward: two buffers for all layers, allocated once for a run.

Float32, so that no row is widened again in every step; a key is a column, since BLAS adds up a product of
two matrices in the order of their numbers only where neither is transposed (``exact_attention``).

L layers · G key-value heads · D head size · S slots
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from medusa_core.target.exact_attention import ONES
from medusa_core.target.kv_cache import TreeCache

# Families whose layers differ from Llama's by a bias, a norm on queries and keys, a rotary setting, a window.
LEAN = frozenset({
    "cwm", "llama", "ministral", "mistral", "phi3", "qwen2", "qwen3", "seed_oss", "smollm3"
})  # fmt: skip


def lean_cache_row(config: Any) -> int | None:
    """Bytes of a row of all layers; None for a model of a family that the lean forward does not take."""
    if config.model_type not in LEAN:
        return None
    heads = config.num_key_value_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.num_hidden_layers * heads * (2 * size + ONES) * torch.float32.itemsize


class LeanCache(TreeCache):
    """Keys [L, G, D, S] and values [L, G, S, D + ONES]; the layers that transformers knows are views."""

    def __init__(self, layers: int, heads: int, size: int, slots: int, device: torch.device) -> None:
        super().__init__(layers, slots)
        self._allocate(layers, heads, size, slots, device)
        self._kept: tuple[torch.Tensor, torch.Tensor] | None = None

    def kept(self, given: torch.Tensor, make: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """What ``make`` makes of a tree's mask, which is the same tensor in most steps of a run."""
        if self._kept is None or self._kept[0] is not given:
            self._kept = given, make(given)
        return self._kept[1]

    @property
    def nbytes(self) -> int:
        """Bytes of both buffers."""
        return self.keys.nbytes + self.values.nbytes

    def commit(self, path: Sequence[int]) -> None:
        """Keep the rows of ``path`` [A], counted from the first row of the last write, in path order."""
        start, count = self.length, len(path)
        if list(path) != list(range(count)):
            rows = torch.tensor(path, device=self.keys.device) + start
            # Indexing copies before it is assigned, so overlapping source and target are safe.
            self.keys[..., start : start + count] = self.keys[..., rows]
            self.values[:, :, start : start + count] = self.values[:, :, rows]
        for layer in self._layers:
            layer.length = start + count

    def reserve(self, slots: int) -> None:
        """Make room for ``slots`` rows in all; committed rows stay."""
        if slots <= self.slots:
            return
        keys, values, length = self.keys, self.values, self.length
        layers, heads, size, _ = keys.shape
        self._allocate(layers, heads, size, slots, keys.device)
        self.keys[..., :length] = keys[..., :length]
        self.values[:, :, :length] = values[:, :, :length]

    def _allocate(self, layers: int, heads: int, size: int, slots: int, device: torch.device) -> None:
        self.slots = slots
        self.keys = torch.zeros(layers, heads, size, slots, device=device)
        self.values = torch.zeros(layers, heads, slots, size + ONES, device=device)
        self.values[..., size] = 1
        for number, layer in enumerate(self._layers):
            layer.slots = slots
            layer.keys = self.keys[None, number].transpose(2, 3)
            layer.values = self.values[None, number, :, :, :size]
            layer.dtype, layer.device, layer.is_initialized = torch.float32, device, True
