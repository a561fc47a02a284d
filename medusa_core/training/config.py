"""Every default of the training recipes, as dataclasses whose fields carry their range and help text.

A recipe's settings are its flags on the command line and its controls in the app. Paper §2.2, appendix B.2.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

from medusa_core.config import MOST_SEED, check_settings, setting

# Far beyond what is sensible, and below what overflows a number or lays out more windows than memory holds.
MOST_TOKENS = 10**12
MOST_WINDOW = 2**20
MOST_BATCH = 2**26
MOST_STEPS = 10**9
MOST_ANSWERS = 10**8
MOST_RATE = 1e30  # a run with such a rate diverges, and says so

Config = TypeVar("Config", bound="RunConfig")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What every recipe has: a run folder, a length, batches, checkpoints."""

    out: str = setting("runs/run", "run folder: config, metrics, checkpoints, card and the result")
    recipe: str = setting("assets/model/recipe.json", "JSON file naming the kinds of text and their shares")
    data_root: str = setting(".", "folder the recipe's file names are relative to")
    tokens: int = setting(1_000_000, "training tokens in all", low=1, high=MOST_TOKENS)
    sequence_length: int = setting(512, "tokens of a training window", low=8, high=MOST_WINDOW)
    batch_tokens: int = setting(
        4096, "tokens a step, over all processes and accumulated passes", low=8, high=MOST_BATCH
    )
    accumulate: int = setting(
        1, "forward passes a step, over parts of its batch that count alike", low=1, high=MOST_BATCH
    )
    warmup_steps: int = setting(40, "steps of linear warm-up", low=1, high=MOST_STEPS)
    evaluate_every: int = setting(250, "steps between two held-out evaluations", low=1, high=MOST_STEPS)
    checkpoint_every: int = setting(100, "steps between two checkpoints", low=1, high=MOST_STEPS)
    checkpoint_minutes: float = setting(
        15.0, "minutes between two checkpoints at most: on a busy machine steps take long", low=0.0, high=1e6
    )
    track: str = setting(
        "none", "also log to this tracker, when it is installed", choices=("none", "tensorboard", "trackio")
    )
    seed: int = setting(
        0, "seed of fresh weights, of dropout and of the order of the text", low=0, high=MOST_SEED
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def as_kind(self, kind: type[Config], **changes: Any) -> Config:
        """These settings, with changes, as another recipe's, all of whose fields they have."""
        return kind(**{field.name: getattr(self, field.name) for field in fields(kind)} | changes)

    @property
    def steps(self) -> int:
        """Optimizer steps of the run."""
        return max(1, self.tokens // self.batch_tokens)


@dataclass(frozen=True, kw_only=True)
class DrafterConfig(RunConfig):
    """What the recipes for weights of a drafter share: the base they are for, and the text."""

    model: str = setting("", "folder or hub name of the base model; default: the embedded model's base")
    base_name: str = setting("", "name of the base in the heads' config; default: what --model says")
    data: str = setting("", "file or folder of .jsonl or .txt to train on; default: the recipe's mixture")
    heldout_share: float = setting(0.02, "share of --data that is held out", low=0.001, high=0.5)
    heldout_windows: int = setting(
        64, "held-out windows of each kind that an evaluation reads", low=1, high=MOST_STEPS
    )
    start: str = setting("", "folder or hub name of heads to go on from, in any format; default: fresh heads")
    learning_rate: float = setting(2e-3, "peak learning rate of the heads", low=0.0, high=MOST_RATE)
    precision: str = setting(
        "auto", "bf16: autocast; auto: where the hardware has it", choices=("auto", "bf16", "float32")
    )
    optimizer: str = setting(
        "adamw",
        "muon: on matrices, AdamW on LM heads, norms and biases; adamw8bit: bitsandbytes, CUDA only",
        choices=("adamw", "muon", "adamw8bit"),
    )
    matrix_learning_rate: float = setting(
        4e-3, "peak rate of Muon on the matrices, with --optimizer muon", low=0.0, high=MOST_RATE
    )
    matrix_decay: float = setting(
        0.0, "weight decay of Muon: each step shrinks a matrix by the rate times this", low=0.0, high=10.0
    )
    base_4bit: bool = setting(False, "hold the frozen base in 4 bits (bitsandbytes, CUDA only)")


@dataclass(frozen=True, kw_only=True)
class HeadsConfig(DrafterConfig):
    """What the recipes for heads on a frozen base share."""

    heads: int = setting(5, "number of heads, K", low=1, high=16)
    head_decay: float = setting(0.8, "λ: head k's loss counts λ^k", low=0.0, high=1.0)
    compile: bool = setting(False, "compile the base with torch.compile: worth it from a few minutes on")


@dataclass(frozen=True, kw_only=True)
class Medusa1Config(HeadsConfig):
    """Medusa-1: heads on a frozen base (paper §2.2.1)."""

    out: str = setting("runs/medusa1", "run folder: config, metrics, checkpoints, card and the heads")
    head_layers: int = setting(1, "residual blocks of a head L", low=1, high=8)
    lm_head: str = setting(
        "own",
        "own: each fresh head learns an LM head; base: all use the base's as it is, for small files",
        choices=("own", "base"),
    )


@dataclass(frozen=True, kw_only=True)
class DraftLayerConfig(DrafterConfig):
    """What the recipes for a draft layer on a frozen base share."""

    unrolled_steps: int = setting(7, "steps that a row drafts ahead", low=1, high=16)
    unrolled_decay: float = setting(
        0.8, "λ: the loss of step i, counted from 0, counts λ^i", low=0.0, high=1.0
    )
    feature_weight: float = setting(
        0.0,
        "weight of a loss that asks each output to be its place's fused features, as EAGLE-1 and HASS do",
        low=0.0,
        high=1000.0,
    )
    compile: bool = setting(
        False, "compile the draft layer with torch.compile: minutes first, then each step is shorter"
    )


@dataclass(frozen=True, kw_only=True)
class Eagle3Config(DraftLayerConfig):
    """EAGLE-3: a draft layer on a frozen base, which learns to go on from its own output."""

    out: str = setting("runs/eagle3", "run folder: config, metrics, checkpoints, card and the draft layer")
    start: str = setting("", "folder or hub name of an EAGLE-3 layer to go on from; default: a fresh one")
    draft_vocab: int = setting(
        0, "tokens that can be drafted, the most frequent of the text; 0: all", low=0, high=MOST_WINDOW
    )
    draft_mlp: int = setting(0, "width of the layer's MLP; 0: the base's", low=0, high=262_144)
    feature_layers: str = setting(
        "",
        "the three layers whose inputs are fused, as 2,4,6; of n, n: the last one's output; default: a rule",
    )
    norm_before_residual: bool = setting(
        False, "add the normed features behind attention, as EAGLE-3.1 does: later guesses learn faster"
    )
    learning_rate: float = setting(5e-5, "peak learning rate", low=0.0, high=MOST_RATE)


@dataclass(frozen=True, kw_only=True)
class MtpConfig(DraftLayerConfig):
    """Multi-token prediction: a layer behind a frozen base, DeepSeek-V3's way (arXiv 2412.19437)."""

    out: str = setting("runs/mtp", "run folder: config, metrics, checkpoints, card and the layer")
    start: str = setting("", "folder or hub name of such a layer to go on from; default: a fresh one")
    unrolled_steps: int = setting(4, "steps that a row drafts ahead", low=1, high=16)
    learning_rate: float = setting(1e-3, "peak learning rate", low=0.0, high=MOST_RATE)


@dataclass(frozen=True, kw_only=True)
class BlockConfig(DraftLayerConfig):
    """Block drafter: layers on a frozen base that guess several tokens in one pass (arXiv 2602.06036)."""

    out: str = setting("runs/block", "run folder: config, metrics, checkpoints, card and the drafter")
    start: str = setting("", "folder or hub name of a block drafter to go on from; default: a fresh one")
    unrolled_steps: int = setting(5, "tokens of a block, which one pass drafts", low=1, high=16)
    block_layers: int = setting(2, "decoder layers of the drafter", low=1, high=8)
    learning_rate: float = setting(1e-3, "peak learning rate", low=0.0, high=MOST_RATE)


@dataclass(frozen=True, kw_only=True)
class HydraConfig(Medusa1Config):
    """Hydra: heads that see the tokens drafted before them, on a frozen base (arXiv 2402.05109)."""

    out: str = setting("runs/hydra", "run folder: config, metrics, checkpoints, card and the heads")
    start: str = setting("", "folder or hub name of Hydra heads to go on from; default: fresh heads")
    heads: int = setting(4, "number of heads, K", low=1, high=16)
    prefix: bool = setting(False, "a decoder layer over the hidden states in front of the heads (prefix-mlp)")
    head_decay: float = setting(1.0, "λ: head k's loss counts λ^k", low=0.0, high=1.0)
    learn_from: str = setting(
        "base",
        "base: what the base says of each token (KL); text: the tokens alone",
        choices=("base", "text"),
    )


@dataclass(frozen=True, kw_only=True)
class TokenSwiftConfig(HeadsConfig):
    """TokenSwift: heads in a chain, on a frozen base and its LM head (arXiv 2502.18890)."""

    out: str = setting("runs/tokenswift", "run folder: config, metrics, checkpoints, card and the heads")
    start: str = setting("", "folder or hub name of TokenSwift heads to go on from; default: fresh heads")
    heads: int = setting(3, "number of heads, K", low=1, high=16)
    learning_rate: float = setting(5e-3, "peak learning rate of the heads", low=0.0, high=MOST_RATE)


@dataclass(frozen=True, kw_only=True)
class Medusa2Config(Medusa1Config):
    """Medusa-2: heads and backbone together, in a way that keeps the backbone's quality (paper §2.2.2)."""

    out: str = setting("runs/medusa2", "run folder: config, metrics, checkpoints, card and the result")
    backbone_learning_rate: float = setting(
        5e-4, "peak learning rate of the backbone", low=0.0, high=MOST_RATE
    )
    head_weight: float = setting(
        0.2, "λ0: weight of the heads' loss beside the backbone's", low=0.0, high=1000.0
    )
    head_warmup: str = setting(
        "two-stage",
        "two-stage: Medusa-1 first; sine: λ0 rises over the run; none: as in direct fine-tuning",
        choices=("two-stage", "sine", "none"),
    )
    stage1_tokens: int = setting(
        0, "tokens of the first stage; default: as many as --tokens", low=0, high=MOST_TOKENS
    )
    gradient_checkpointing: bool = setting(False, "recompute activations instead of keeping them")
    lora: bool = setting(True, "train a low-rank adapter; otherwise all weights of the backbone")
    lora_rank: int = setting(32, "rank r of the adapter", low=1, high=1024)
    lora_alpha: int = setting(16, "α of the adapter: its product is scaled by α / r", low=1, high=65_536)
    lora_dropout: float = setting(0.05, "dropout in front of the adapter", low=0.0, high=0.9)
    lora_lm_head: bool = setting(True, "adapt the LM head as well; unties it from the embedding")
    teacher: str = setting(
        "text",
        "what the backbone learns from: the text, or itself with its adapter switched off (KL)",
        choices=("text", "self"),
    )
    save: str = setting(
        "adapter",
        "adapter: heads and adapter in one folder; merged: a whole model with its heads",
        choices=("adapter", "merged"),
    )


@dataclass(frozen=True, kw_only=True)
class DirectConfig(Medusa2Config):
    """Direct fine-tuning: jointly, without Medusa-2's measures; it costs quality (paper §3.3.3)."""

    out: str = setting("runs/direct", "run folder: config, metrics, checkpoints, card and the result")
    backbone_learning_rate: float = setting(
        2e-3, "peak learning rate of the backbone", low=0.0, high=MOST_RATE
    )
    head_weight: float = setting(
        1.0, "λ0: weight of the heads' loss beside the backbone's", low=0.0, high=1000.0
    )
    head_warmup: str = setting("none", "as in medusa2", choices=("two-stage", "sine", "none"))


@dataclass(frozen=True, kw_only=True)
class SelfDistillConfig(Medusa2Config):
    """Self-distillation: the base answers the prompts, and learns from its answers (paper §2.3.2)."""

    out: str = setting("runs/self-distill", "run folder: answers, metrics, checkpoints, card and the result")
    prompts: str = setting(
        "",
        "file or folder of prompts, dialogues or texts to begin with; default: the recipe's text, "
        "or beginnings that the model invents where --data-root has none of it",
    )
    answers: int = setting(2000, "texts to write", low=1, high=MOST_ANSWERS)
    answer_tokens: int = setting(192, "tokens of an answer at most", low=1, high=MOST_WINDOW)
    temperature: float = setting(0.3, "temperature of the answers", low=0.0, high=2.0)
    answer_batch: int = setting(
        32, "answers written at a time: more are faster and take more memory", low=1, high=65_536
    )
    train: str = setting(
        "medusa2", "what to train on the answers", choices=("medusa1", "medusa2", "nothing")
    )  # fmt: skip
    teacher: str = setting("self", "as in medusa2", choices=("text", "self"))
    head_warmup: str = setting("sine", "as in medusa2", choices=("two-stage", "sine", "none"))
    head_weight: float = setting(
        0.01, "λ0: weight of the heads' loss beside the backbone's", low=0.0, high=1000.0
    )
