"""Fewer key-value heads: mean pooling of a trained model's, and a short training behind it.

Grouped-query attention (Ainslie et al., 2023, arXiv 2305.13245) makes a model with multi-head attention one
whose query heads share keys and values: the projections of a group are averaged, and a training of a
twentieth of the first one's length takes back what that costs. The embedded model was trained with one shared
head, so a small model with as many key-value heads as query heads is trained here first, with its tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa_core.config import setting

TITLE = "Key-value heads shared after the training"
QUALITY = "loss on held-out text, nats a token; lower is better"
TRAINS = True


@dataclass(frozen=True)
class Settings:
    """The model that is trained, on what, and how long."""

    query_heads: int = setting(
        4, "query heads, each with a key-value head of its own at first", low=2, high=32
    )
    layers: int = setting(2, "decoder layers", low=1, high=16)
    head_size: int = setting(32, "numbers in a head", low=8, high=256, step=8)
    tokens: int = setting(2_000_000, "tokens of the first training", low=1024)
    uptrained: float = setting(0.05, "share of them that a model with shared heads sees", low=0.0, high=1.0)
    data: str = setting("", "text to train on, .jsonl or .txt; default: text the model itself writes")
    runs: str = setting("runs/grouped-heads", "folder for the text and the models")


DEFAULTS: dict[str, object] = {"limit": 2, "max_new_tokens": 96}
QUICK: dict[str, object] = {"tokens": 8192, "layers": 1, "head_size": 8}
