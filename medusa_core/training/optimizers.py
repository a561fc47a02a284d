"""The optimizers of a run: AdamW, its 8-bit kind, or Muon on matrices with AdamW on the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from medusa_core.errors import MedusaError
from medusa_core.training.config import DrafterConfig

_BETAS = (0.9, 0.95)
# In names of embeddings and LM heads, whose rows are tokens: Muon is for what turns states into states.
_TABLES = ("embed", "lm_head", "last.")
Named = Iterable[tuple[str, torch.nn.Parameter]]


def make_optimizers(config: DrafterConfig, *parts: tuple[Named, float]) -> list[torch.optim.Optimizer]:
    """What ``config.optimizer`` says, for parts of named weights with their peak rates.

    Raises MedusaError when that cannot be had.
    """
    if config.optimizer == "muon":
        weights = [item for named, _ in parts for item in named]
        if len(parts) > 1 or not any(map(_is_matrix, *zip(*weights, strict=True))):
            raise MedusaError(
                "torch's Muon takes single matrices, and this recipe trains others or several in one: use "
                "--optimizer adamw"
            )
        return muon_and_adamw(weights, config.matrix_learning_rate, parts[0][1], weight_decay=0.0)
    groups = [{"params": [weight for _, weight in named], "lr": rate} for named, rate in parts]
    if config.optimizer == "adamw":
        return [torch.optim.AdamW(groups, betas=_BETAS, weight_decay=0.0, fused=True)]
    if not torch.cuda.is_available():
        raise MedusaError("adamw8bit needs a CUDA GPU: use --optimizer adamw")
    try:
        from bitsandbytes.optim import AdamW8bit  # noqa: PLC0415 - optional, and only on CUDA
    except ImportError as error:
        raise MedusaError("adamw8bit needs bitsandbytes: pip install bitsandbytes") from error
    return [AdamW8bit(groups, betas=_BETAS, weight_decay=0.0)]


def muon_and_adamw(
    weights: Named, matrix_rate: float, rate: float, weight_decay: float
) -> list[torch.optim.Optimizer]:
    """Muon for the matrices that are no table of tokens, AdamW for all else; decay is that of matrices."""
    weights = [(name, weight) for name, weight in weights if weight.requires_grad]
    matrices, others = (list(_of_kind(weights, kind)) for kind in (True, False))
    muon = torch.optim.Muon(
        matrices, lr=matrix_rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"
    )
    return [muon, torch.optim.AdamW(others, lr=rate, betas=_BETAS, weight_decay=0.0, fused=True)]


def _is_matrix(name: str, weight: torch.nn.Parameter) -> bool:
    return weight.ndim == 2 and not any(table in name for table in _TABLES)


def _of_kind(weights: Named, matrices: bool) -> Iterator[torch.nn.Parameter]:
    return (weight for name, weight in weights if _is_matrix(name, weight) == matrices)
