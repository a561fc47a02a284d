"""Every method that needs no other weights than those loaded, by kind of text, in the manner of Spec-Bench.

Spec-Bench (Xia et al., 2024, arXiv 2401.07851) asks 480 questions of six kinds of Vicuna; ours are the kinds
of text that the model can write. As there, a method's speedup is its tokens per second over plain decoding's.
"""

from __future__ import annotations

from dataclasses import dataclass

TITLE = "Every drafter by kind of text"
QUALITY = None
ALL = "all kinds"


@dataclass(frozen=True)
class Settings:
    """Nothing of its own: kinds come with the prompts, methods with the loaded weights."""


DEFAULTS: dict[str, object] = {"limit": 5, "max_new_tokens": 96, "rounds": 2}
QUICK: dict[str, object] = {}
