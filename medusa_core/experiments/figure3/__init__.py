"""Figure 3: speedup by kind of text (paper §3.1).

The paper's kinds are the categories of MT-Bench, ours those the model can write; what is compared is that
the gain depends on how foreseeable a text is, not the numbers one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

TITLE = "Speedup by kind of text"
QUALITY = None


@dataclass(frozen=True)
class Settings:
    """Nothing of its own: kinds come with the prompts."""


DEFAULTS: dict[str, object] = {"limit": 8, "max_new_tokens": 96}
QUICK: dict[str, object] = {}
