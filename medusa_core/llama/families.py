"""The families that the forward in C computes, by their model type.

Their layers differ from Llama's by a bias, a norm on queries and keys, a rotary setting or a window.
"""

from __future__ import annotations

FAMILIES = frozenset({
    "cwm", "llama", "ministral", "mistral", "phi3", "qwen2", "qwen3", "seed_oss", "smollm3"
})  # fmt: skip
