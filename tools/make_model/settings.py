"""The settings of pretraining, as flags of ``python -m tools.make_model``."""

from __future__ import annotations

from dataclasses import dataclass

from medusa_core.config import setting
from medusa_core.training.config import MOST_BATCH, MOST_RATE, MOST_STEPS, MOST_TOKENS, MOST_WINDOW, RunConfig


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(RunConfig):
    """Recipe of the embedded base model."""

    out: str = setting("runs/base", "run folder: checkpoints, metrics and the finished model")
    tokens: int = setting(30_000_000, "training tokens in all", low=1, high=MOST_TOKENS)
    tokenizer: str = setting(
        "", "tokenizer.json to keep, so that losses stay comparable; default: a new one made from the text"
    )
    start: str = setting(
        "",
        "folder of a Llama to go on from, which gives the sizes, or several as A=0.4,B=0.6, whose mean is "
        "taken; default: fresh weights",
    )
    teachers: str = setting(
        "",
        "comma-separated folders of Llamas: the mean of their predictions is learned on text a phase keeps",
    )
    feature_weight: float = setting(
        1.0, "weight of the distance from the first teacher's hidden states", low=0.0, high=1e6
    )
    pairs: str = setting(
        "", "file that tools.make_model.repeats wrote, learned alongside the text against the first teacher"
    )
    pair_batch: int = setting(16, "pairs of a forward pass", low=1, high=MOST_BATCH)
    pair_weight: float = setting(0.3, "weight of their loss", low=0.0, high=1e6)
    pair_beta: float = setting(
        0.3,
        "how soon a preference is strong enough (beta of equation 7 of arXiv 2305.18290)",
        low=0.0,
        high=1e3,
    )
    vocab_size: int = setting(4096, "tokens of a new tokenizer, a byte-level BPE", low=300, high=65_536)
    hidden_size: int = setting(384, "width of the model", low=16, high=65_536)
    intermediate_size: int = setting(1024, "width of the MLP", low=16, high=262_144)
    layers: int = setting(6, "decoder layers", low=1, high=1000)
    attention_heads: int = setting(6, "query heads", low=1, high=1024)
    kv_heads: int = setting(2, "key-value heads (grouped-query attention)", low=1, high=1024)
    context: int = setting(1024, "longest context the model is declared for", low=16, high=MOST_WINDOW)
    rotary_base: float = setting(
        10_000.0,
        "base of the rotary position embedding: 100,000 for a context of 8,192",
        low=1.0,
        high=1e12,
    )
    long_share: float = setting(
        0.15, "last share of the run, on windows of the whole context; not for phases", low=0.0, high=1.0
    )
    batch_tokens: int = setting(12_288, "tokens a step", low=8, high=MOST_BATCH)
    max_tokens: int = setting(
        120_000_000,
        "tokens whose order is laid out in advance: how far a run can be lengthened",
        low=1,
        high=MOST_TOKENS,
    )
    matrix_learning_rate: float = setting(4e-3, "peak rate of Muon on the matrices", low=0.0, high=MOST_RATE)
    learning_rate: float = setting(
        2e-3, "peak rate of AdamW on embeddings and norms", low=0.0, high=MOST_RATE
    )
    weight_decay: float = setting(0.1, "weight decay of the matrices", low=0.0, high=10.0)
    dropout: float = setting(
        0.0, "dropout after attention and MLP; a phase of the recipe may set its own", low=0.0, high=0.9
    )
    warmup_steps: int = setting(100, "steps of linear warm-up", low=1, high=MOST_STEPS)
    decay_share: float = setting(
        0.4, "last share of the run over which the rate falls to zero", low=0.0, high=1.0
    )
    compile: bool = setting(
        False,
        "torch.compile: a minute first, then each step is shorter; passes with teachers are not compiled",
    )
