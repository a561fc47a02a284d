"""Every default once, as dataclasses whose fields carry their range and help text.

The command line turns the fields into flags and the app turns them into sliders, so a default, a range or
a sentence of help is written here and nowhere else. Knows nothing about models.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from medusa_core.errors import MedusaError


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    step: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> Any:
    """A dataclass field with a default, help text, an inclusive range and, for sliders, a step."""
    metadata = {"help": help, "low": low, "high": high, "step": step, "choices": choices}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class PretrainConfig:
    """Recipe of the embedded base model."""

    out: str = setting("runs/base", "run folder: checkpoints, metrics and the finished model")
    recipe: str = setting("assets/model/recipe.json", "JSON file naming the kinds of text and their shares")
    data_root: str = setting(".", "folder the recipe's file names are relative to")
    tokens: int = setting(30_000_000, "training tokens in all", low=1)
    vocab_size: int = setting(4096, "tokens of the byte-level BPE", low=300, high=65_536)
    hidden_size: int = setting(384, "width of the model", low=16)
    intermediate_size: int = setting(1024, "width of the MLP", low=16)
    layers: int = setting(6, "decoder layers", low=1)
    attention_heads: int = setting(6, "query heads", low=1)
    kv_heads: int = setting(2, "key-value heads (grouped-query attention)", low=1)
    context: int = setting(1024, "longest context the model is declared for", low=16)
    sequence_length: int = setting(512, "tokens of a training window", low=8)
    long_share: float = setting(
        0.15, "last share of the run, trained on windows of the whole context", low=0.0, high=1.0
    )
    batch_tokens: int = setting(12_288, "tokens a step", low=8)
    max_tokens: int = setting(
        120_000_000, "tokens whose order is laid out in advance: how far a run can be lengthened"
    )
    matrix_learning_rate: float = setting(4e-3, "peak rate of Muon on the matrices", low=0.0)
    learning_rate: float = setting(2e-3, "peak rate of AdamW on embeddings and norms", low=0.0)
    weight_decay: float = setting(0.1, "weight decay of the matrices", low=0.0)
    warmup_steps: int = setting(100, "steps of linear warm-up", low=1)
    decay_share: float = setting(
        0.4, "last share of the run over which the rate falls to zero", low=0.0, high=1.0
    )
    evaluate_every: int = setting(250, "steps between two held-out evaluations", low=1)
    checkpoint_every: int = setting(100, "steps between two checkpoints", low=1)
    compile: bool = setting(
        False, "compile the model with torch.compile (a minute first, then about 1.5 times as fast)"
    )
    seed: int = setting(0, "seed of the weights and of the order of the text")


@dataclass(frozen=True)
class Medusa1Config:
    """Recipe of Medusa-1 heads: the base is frozen (paper §2.2.1)."""

    model: str = setting("runs/base/model", "folder of the base model")
    out: str = setting("runs/heads", "run folder: checkpoints, metrics and the finished heads")
    base_name: str = setting("", "name of the base in the heads' config; default: the folder")
    recipe: str = setting("assets/model/recipe.json", "JSON file naming the kinds of text and their shares")
    data_root: str = setting(".", "folder the recipe's file names are relative to")
    tokens: int = setting(4_000_000, "training tokens in all", low=1)
    heads: int = setting(5, "number of heads K", low=1, high=16)
    head_layers: int = setting(1, "residual blocks of a head L", low=1, high=8)
    head_decay: float = setting(0.8, "λ: head k's loss counts λ^k", low=0.0, high=1.0)
    sequence_length: int = setting(512, "tokens of a training window", low=16)
    batch_tokens: int = setting(4096, "tokens a step", low=16)
    learning_rate: float = setting(2e-3, "peak rate of AdamW", low=0.0)
    warmup_steps: int = setting(40, "steps of linear warm-up", low=1)
    evaluate_every: int = setting(250, "steps between two held-out evaluations", low=1)
    checkpoint_every: int = setting(100, "steps between two checkpoints", low=1)
    seed: int = setting(1, "seed of the order of the text")


@dataclass(frozen=True)
class GenerationConfig:
    """Settings of one run."""

    method: str = setting("medusa", "how to draft: medusa heads, or none for plain decoding")
    acceptance: str = setting(
        "match", "match: the model's own tokens; typical: what it finds plausible enough"
    )
    temperature: float = setting(
        0.0, "0 is greedy; higher flattens the distribution", low=0.0, high=2.0, step=0.05
    )
    epsilon: float = setting(0.09, "ε, the highest bar of typical acceptance", low=0.01, high=1.0, step=0.01)
    delta: float = setting(
        0.3, "δ, scales the bar δ·exp(−entropy) of typical acceptance", low=0.01, high=1.0, step=0.01
    )
    tree: str = setting(
        "default", "default (shipped with the heads), a published tree, cartesian-4x2x1 or a .json file"
    )
    max_new_tokens: int = setting(128, "token budget of the run", low=1, high=4096, step=1)
    seed: int = setting(0, "seed of the draws", low=0, high=2**31 - 1, step=1)
    root: str = setting("argmax", "how typical acceptance picks the root token", choices=("argmax", "sample"))
    ignore_eos: bool = setting(False, "go on after the end-of-text token")
    stop: tuple[str, ...] = setting((), "text that ends the run")

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class LoadConfig:
    """What to load and where to put it."""

    model: str = setting("", "folder or hub name of the base model; default: the embedded model")
    heads: str = setting("", "folder or hub name of the heads; default: the heads that belong to the model")
    dtype: str = setting("auto", "dtype of the weights", choices=("auto", "float32", "bfloat16", "float16"))
    device: str = setting("auto", "where to run", choices=("auto", "cpu", "cuda", "mps"))


def check_settings(config: Any) -> None:
    """Raise MedusaError when a field of a settings dataclass is outside its range or choices."""
    for item in fields(config):
        value, meta = getattr(config, item.name), item.metadata
        if meta.get("choices") and value not in meta["choices"]:
            raise MedusaError(f"{item.name} is {value!r}: use one of {', '.join(meta['choices'])}")
        low, high = meta.get("low"), meta.get("high")
        if low is not None and not value >= low:
            raise MedusaError(f"{item.name} is {value}, the smallest is {low}: raise it")
        if high is not None and not value <= high:
            raise MedusaError(f"{item.name} is {value}, the largest is {high}: lower it")
