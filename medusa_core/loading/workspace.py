"""What a load and the runs after it need beside weights and cache, on a CPU counted from what was measured.

A model of 14 and one of 1,100 million parameters were loaded in each of these ways and read long prompts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from medusa_core.llama import cache as llama_cache
from medusa_core.llama.library import Library
from medusa_core.llama.weights import DTYPES
from medusa_core.loading.model_size import LlamaSize, ModelSize
from medusa_core.loading.native_library import native_library
from medusa_core.model.captured_forward import SIZES
from medusa_core.model.forward import MOST_ROWS
from medusa_core.model.kv_cache import padded_rows
from medusa_core.model.target import PREFILL_CHUNK

TREE = 64  # rows of a tree behind the text
_LIBRARIES = 30 * 2**20  # that a load and a first run bring into memory
_FRAGMENTS = 0.01  # of weights and cache
_ELSEWHERE = 0.1  # the same with buffers of kernels, for forwards that were not measured


@dataclass(frozen=True)
class Way:
    """How a model runs: in C, or by transformers' forward."""

    native: LlamaSize | None  # in C
    dtype: torch.dtype
    device: str  # its kind
    captured: bool  # steps are recorded over buffers that stay

    @classmethod
    def of(cls, shape: ModelSize, dtype: torch.dtype, device: str, *, packed: bool, captured: bool) -> Way:
        """That of plain weights, or ``packed`` ones, in ``dtype``."""
        native = shape.llama if device == "cpu" and not packed and dtype in DTYPES else None
        if native is not None and not isinstance(native_library(), Library):
            native = None
        return cls(native, dtype, device, captured and device == "cuda")

    @property
    def on_cpu(self) -> bool:
        """Whether it shares the memory of the process."""
        return self.device == "cpu"

    @property
    def margin(self) -> float:
        """The part of weights and cache that is lost between them."""
        return _FRAGMENTS if self.native else _ELSEWHERE

    def cache_bytes(self, shape: ModelSize, rows: int) -> int:
        """Keys and values of so many rows."""
        if self.captured:
            rows = padded_rows(rows, SIZES[-1])
        if self.native is None:
            return 2 * shape.layers * shape.key_value_width * self.dtype.itemsize * rows
        heads = shape.layers * self.native.heads
        return heads * llama_cache.row_bytes(self.native.head_size, self.dtype) * rows

    def window_rows(self, window: int) -> int:
        """Rows of the cache in C where every layer sees a window."""
        return llama_cache.window_slots(window)

    @property
    def fixed(self) -> int:
        """Bytes that are the same whatever the model's size."""
        return _LIBRARIES if self.on_cpu else 0

    def workspace(self, shape: ModelSize, heads: int, largest: int) -> int:
        """What else there is beside weights and cache, with ``heads`` and the ``largest`` of them."""
        kept = self._activations(shape)
        if self.native is None:
            # Heads are read and stacked on the CPU before they go where they stay.
            return kept + (heads if self.on_cpu else 0)
        return max(largest, kept + heads)  # panels of them, and what they are made by

    def _activations(self, shape: ModelSize) -> int:
        """Bytes that reading a part of the prompt keeps, and some logits."""
        logits = 2 * TREE * shape.vocabulary * torch.float32.itemsize
        if self.native is None:  # all hidden states, and one layer's inside
            states = PREFILL_CHUNK * ((shape.layers + 1) * shape.width + 3 * shape.intermediate)
            return states * self.dtype.itemsize + logits
        return MOST_ROWS * (6 * shape.width + 3 * shape.intermediate) * torch.float32.itemsize + logits


def packs_in_c(quantize: str, dtype: torch.dtype, device: str) -> bool:
    """Whether the C packs what ``quantize`` asks for, of a family that it knows; else bitsandbytes does."""
    return (
        quantize == "8bit" and device == "cpu" and dtype in DTYPES and isinstance(native_library(), Library)
    )
