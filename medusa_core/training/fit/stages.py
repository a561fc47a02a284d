"""What a fit tells the recipes: the settings of its answers, its training of heads, its joint training."""

from __future__ import annotations

from pathlib import Path

from medusa_core.checkpoints.locate import embedded_model
from medusa_core.training.base_model import base_folder
from medusa_core.training.config import Medusa1Config, Medusa2Config, SelfDistillConfig
from medusa_core.training.fit.plan import Plan
from medusa_core.training.fit.prompts import PROMPTS
from medusa_core.training.fit.settings import FitConfig
from medusa_core.training.self_distill import ANSWERS

HEADS_RUN = "train-heads"
JOINT_RUN = "train-joint"
EVALUATIONS = 3
HELDOUT_WINDOWS = 16  # windows an evaluation reads; more would cost a short run too much of its time
_CHECKPOINTS = 10


def answer_config(config: FitConfig, plan: Plan) -> SelfDistillConfig:
    """How the base writes its answers: to the training prompts, or to what it invents."""
    return SelfDistillConfig(
        model=config.model,
        out=config.out,
        recipe="",  # no text that happens to lie about: the prompts, or what the model invents
        prompts=str(Path(config.out) / PROMPTS) if config.prompts else "",
        answers=plan.answers,
        answer_tokens=plan.answer_tokens,
        answer_batch=config.answer_batch,
        temperature=config.temperature,
        train="nothing",
        precision=config.precision,
        base_4bit=config.base_4bit,
        seed=config.seed,
    )


def head_config(config: FitConfig, plan: Plan, folder: Path) -> Medusa1Config:
    """Medusa-1 on the answers below ``folder``."""
    own = _common(config, plan, folder, plan.tokens)
    return Medusa1Config(**own, out=str(folder / HEADS_RUN), base_4bit=config.base_4bit)


def joint_config(config: FitConfig, plan: Plan, folder: Path, heads: Path) -> Medusa2Config:
    """Medusa-2 from the trained ``heads``; the base learns to stay what it is."""
    return Medusa2Config(
        **_common(config, plan, folder, plan.joint_tokens),
        out=str(folder / JOINT_RUN),
        start=str(heads),
        teacher="self",
        gradient_checkpointing=config.gradient_checkpointing,
        # Heads without LM heads of their own use the base's, which must then stay as it is.
        lora_lm_head=not config.share_lm_head,
    )


def is_embedded(config: FitConfig) -> bool:
    """Whether the base is the model that is part of the project."""
    return base_folder(config.model).resolve() == embedded_model().resolve()


def _common(config: FitConfig, plan: Plan, folder: Path, tokens: int) -> dict:
    steps = max(1, tokens // plan.batch_tokens)
    return {
        "model": config.model,
        "data": str(folder / ANSWERS),
        "tokens": tokens,
        "sequence_length": plan.sequence_length,
        "batch_tokens": plan.batch_tokens,
        "accumulate": max(1, plan.batch_tokens // plan.pass_tokens),
        "warmup_steps": max(1, min(40, steps // 10)),
        "evaluate_every": max(1, -(-steps // EVALUATIONS)),
        "checkpoint_every": max(10, steps // _CHECKPOINTS),
        "heldout_windows": HELDOUT_WINDOWS,
        "heads": config.heads,
        "head_layers": config.head_layers,
        "lm_head": "base" if config.share_lm_head else "own",
        "learning_rate": plan.learning_rate,
        "optimizer": config.optimizer,
        "precision": config.precision,
        "seed": config.seed,
    }
