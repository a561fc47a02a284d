"""The settings of a fit, and what the recipes and the engine are told of them."""

from __future__ import annotations

from dataclasses import dataclass

from medusa_core.config import MOST_SEED, NO_HEADS, LoadConfig, check_settings, setting
from medusa_core.errors import MedusaError
from medusa_core.training.config import MOST_BATCH, MOST_RATE, MOST_WINDOW

MOST_MINUTES = 100_000  # ten weeks
_PRECISION = {"auto": "auto", "float32": "float32", "bfloat16": "bf16", "float16": "auto"}


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """Fit heads to a model: its own answers, training, calibration, the best tree, a measured report."""

    model: str = setting("", "folder or hub name of the base model; default: the embedded model's base")
    out: str = setting("runs/fit", "folder for the stages, the report and the result")
    prompts: str = setting(
        "",
        "file or folder of prompts like those you will ask (.jsonl or .txt); some are held out for "
        "measuring; default: beginnings that the model invents",
    )
    minutes: float = setting(30.0, "about how long the whole may take", low=0.1, high=MOST_MINUTES)
    recipe: str = setting(
        "medusa1",
        "medusa1: the base stays as it is; medusa2: an adapter as well, stronger",
        choices=("medusa1", "medusa2"),
    )
    heads: int = setting(5, "number of heads, K", low=1, high=16)
    head_layers: int = setting(1, "residual blocks of a head L", low=1, high=8)
    share_lm_head: bool = setting(
        False, "heads without LM heads of their own: far smaller (format v2), somewhat less often right"
    )
    learning_rate: float = setting(
        0.0, "peak learning rate of the heads; 0: by the model's width", low=0.0, high=MOST_RATE
    )
    batch_tokens: int = setting(
        0, "training tokens a step; 0: by the length of the training", low=0, high=MOST_BATCH
    )
    sequence_length: int = setting(512, "tokens of a training window", low=16, high=MOST_WINDOW)
    answer_tokens: int = setting(192, "tokens of an answer at most", low=8, high=MOST_WINDOW)
    answer_batch: int = setting(
        32, "answers written at a time: more are faster and take more memory", low=1, high=65_536
    )
    temperature: float = setting(0.3, "temperature of the answers", low=0.0, high=2.0)
    device: str = setting("auto", "where to run", choices=("auto", "cpu", "cuda", "mps"))
    dtype: str = setting("auto", "dtype of the weights", choices=("auto", "float32", "bfloat16", "float16"))
    base_4bit: bool = setting(
        False, "hold the base in 4 bits while heads are trained (CUDA, medusa1): needs bitsandbytes"
    )
    gradient_checkpointing: bool = setting(False, "recompute the base's activations (medusa2)")
    optimizer: str = setting("adamw", "adamw8bit: bitsandbytes, CUDA only", choices=("adamw", "adamw8bit"))
    seed: int = setting(
        0, "seed of the answers, the training and the choice of held-out prompts", low=0, high=MOST_SEED
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.base_4bit and self.joint:
            raise MedusaError("medusa2 changes the base, so it cannot be held in 4 bits: use one of the two")

    @property
    def joint(self) -> bool:
        """Whether the base gets an adapter."""
        return self.recipe == "medusa2"

    @property
    def precision(self) -> str:
        """What the recipes call the dtype."""
        return _PRECISION[self.dtype]

    def load(self, heads: str = NO_HEADS, dtype: str = "") -> LoadConfig:
        """How the engine loads the base, bare or with heads from a folder."""
        return LoadConfig(model=self.model, heads=heads, dtype=dtype or self.dtype, device=self.device)
