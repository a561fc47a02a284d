"""Medusa-2: train heads and backbone together without losing the backbone's quality (paper §2.2.2).

Three measures: a combined loss ``L_LM + λ0 · Σ_k λ^k L_k``, a smaller learning rate for the backbone, and
heads that are warmed up first, by a stage of Medusa-1 or by raising λ0 along a sine. With ``teacher = self``
the backbone learns to stay what it was: L_LM is the KL divergence from itself with its adapter switched off
(§2.3.2). Direct fine-tuning is the same loop without the measures.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from peft import PeftModel
from transformers import PreTrainedModel

from medusa_core.checkpoints.heads import disk_errors
from medusa_core.checkpoints.names import HEADS_FOLDER
from medusa_core.drafters.medusa.files import save_heads
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.errors import MedusaError
from medusa_core.training.base_model import (
    as_teacher,
    base_folder,
    base_name,
    causal_model,
    compile_base,
    load_tokenizer,
    load_trainable,
    read_base,
)
from medusa_core.training.config import Medusa1Config, Medusa2Config
from medusa_core.training.data import Batch
from medusa_core.training.divergence import DivergenceLimit
from medusa_core.training.drafter_run import RESULT, DrafterRun, Recipe, each_loss, recipe
from medusa_core.training.loop import End, Losses, Progress, never
from medusa_core.training.losses import (
    HeadScores,
    distillation_loss,
    head_losses,
    next_token_loss,
    sine_weight,
    weighted_sum,
)
from medusa_core.training.medusa1 import medusa1, score_heads, start_heads

MERGED = "model"  # the merged model's folder inside the run folder


class JointLosses(torch.nn.Module):
    """Backbone and heads as one module whose forward pass is the backbone's loss and the heads' losses."""

    def __init__(self, model: PreTrainedModel | PeftModel, heads: MedusaHeads, own_teacher: bool) -> None:
        super().__init__()
        self.model: PreTrainedModel | PeftModel = model
        self.heads = heads
        self._own_teacher = own_teacher

    def forward(self, tokens: torch.Tensor, trained: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Backbone's loss [] and mean loss of every head [K] on tokens [B, T]."""
        hidden, logits = read_base(self.model, tokens)
        if self._own_teacher:
            with as_teacher(cast("PeftModel", self.model)):  # base_model refuses the setting for others
                _, wanted = read_base(self.model, tokens)
            backbone = distillation_loss(logits, wanted, trained)
        else:
            backbone = next_token_loss(logits, tokens, trained)
        return backbone, head_losses(self.heads, hidden, tokens, trained)


def require_frozen_head(config: Medusa2Config) -> None:
    """Raise MedusaError where the heads are to use the base's LM head and the run trains it."""
    if config.lm_head == "base" and _trains_lm_head(config):
        other = ", or --no-lora-lm-head" if config.lora else ""
        raise MedusaError(
            f"the LM head is trained, so heads cannot use it as it is: use --lm-head own{other}"
        )


def medusa2(config: Medusa2Config, end: End = never) -> Generator[Progress, None, None]:
    """Run the recipe; the last record's ``folder`` is ``<out>/heads``, or ``<out>/model`` when merged."""
    require_frozen_head(config)
    if config.head_warmup == "two-stage" and not config.start:
        start, folder = "", str(Path(config.out) / "stage1")
        first = config.as_kind(Medusa1Config, out=folder, tokens=config.stage1_tokens or config.tokens)
        for progress in medusa1(first, end):
            start = str(progress.folder)
            yield replace(progress, stage="first stage", folder=None)
        config = replace(config, start=start)
    yield from _joint(config, end)


@recipe
def _joint(config: Medusa2Config, run: DrafterRun) -> Recipe:
    torch.manual_seed(config.seed)  # the adapter's first half starts random
    model = load_trainable(config, run.device)
    heads = start_heads(config, causal_model(model), own_last=_trains_lm_head(config)).to(run.device)
    if config.compile:
        compile_base(model, run.device)
    joint = JointLosses(model, heads, config.teacher == "self")

    def losses(forward: Any, batch: Batch, step: int) -> Losses:
        backbone, found = forward(batch.tokens, batch.trained)
        weight = config.head_weight
        if config.head_warmup == "sine":
            weight = sine_weight(weight, step, config.steps)
        loss = backbone + weight * weighted_sum(found, config.head_decay)
        return {"loss": loss, "loss/base": backbone} | each_loss(found)

    def score(batch: Batch) -> tuple[HeadScores, torch.Tensor]:
        joint.eval()
        found = score_heads(model, heads, batch)
        joint.train()
        return found

    return Recipe(
        "joint",
        joint.train(),
        losses,
        score,
        [
            (heads.named_parameters(), config.learning_rate),
            (
                [(name, p) for name, p in model.named_parameters() if p.requires_grad],
                config.backbone_learning_rate,
            ),
        ],
        partial(_save, model, heads, config=config),
        DivergenceLimit("loss/base", math.log(causal_model(model).config.get_text_config().vocab_size)),
        folder=RESULT if config.lora and config.save == "adapter" else MERGED,
    )


def _trains_lm_head(config: Medusa2Config) -> bool:
    return config.lora_lm_head or not config.lora


@disk_errors()
def _save(
    model: PreTrainedModel | PeftModel, heads: MedusaHeads, folder: Path, config: Medusa2Config
) -> None:
    """Heads with the adapter beside them, or a whole model with the heads in its folder."""
    if folder.name == RESULT and isinstance(model, PeftModel):
        save_heads(heads, folder, base=base_name(config))
        model.peft_config["default"].base_model_name_or_path = base_name(config)
        model.save_pretrained(str(folder), save_embedding_layers=False)
        (folder / "README.md").unlink(missing_ok=True)  # peft's empty card; ours takes its place
        return
    merged = model.merge_and_unload(safe_merge=True) if isinstance(model, PeftModel) else model
    merged.to(torch.bfloat16)  # type: ignore[arg-type]  # transformers wraps `to` without its self
    merged.save_pretrained(folder, max_shard_size="9MB")
    load_tokenizer(base_folder(config.model)).save_pretrained(folder)
    save_heads(heads, folder / HEADS_FOLDER, base=base_name(config))
