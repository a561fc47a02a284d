"""The optimizers of a run: AdamW, its 8-bit kind, or Muon on matrices with AdamW on the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from medusa_core.errors import MedusaError
from medusa_core.loading.devices import cpu_has_bf16
from medusa_core.training.config import DrafterConfig

_BETAS = (0.9, 0.95)
# Parts of names of embeddings and LM heads, whose rows are tokens: Muon is for maps of states to states.
_TABLES = ("embed", "lm_head", "last.")
Named = Iterable[tuple[str, torch.nn.Parameter]]


def make_optimizers(config: DrafterConfig, *parts: tuple[Named, float]) -> list[torch.optim.Optimizer]:
    """The optimizers that ``config.optimizer`` names, for parts of named weights with their peak rates.

    Raises MedusaError when that cannot be had.
    """
    if config.optimizer == "muon":
        weights = [item for named, _ in parts for item in named]
        if len(parts) > 1 or not any(_is_matrix(name, weight) for name, weight in weights):
            raise MedusaError(
                "torch's Muon takes single matrices, and this recipe trains others or several in one: use "
                "--optimizer adamw"
            )
        return muon_and_adamw(weights, config.matrix_learning_rate, parts[0][1], config.matrix_decay)
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
    """Muon for matrices other than tables of tokens, AdamW for the rest; ``weight_decay`` is Muon's."""
    weights = [(name, weight) for name, weight in weights if weight.requires_grad]
    matrices = [weight for name, weight in weights if _is_matrix(name, weight)]
    others = [weight for name, weight in weights if not _is_matrix(name, weight)]
    fast = cpu_has_bf16() or all(weight.device.type != "cpu" for _, weight in weights)
    muon = (torch.optim.Muon if fast else Muon)(
        matrices, lr=matrix_rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"
    )
    return [muon, torch.optim.AdamW(others, lr=rate, betas=_BETAS, weight_decay=0.0, fused=True)]


class Muon(torch.optim.Muon):
    """Muon that orthogonalises in float32: torch's does so in bfloat16 alone.

    A processor without instructions for bfloat16 takes some 60 times as long for such a product.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step from the gradients at hand, with torch's formulas and state; ``closure`` is not called."""
        for group in self.param_groups:
            rate, momentum = group["lr"], group["momentum"]
            for weight in group["params"]:
                if (gradient := weight.grad) is None:
                    continue
                state = self.state[weight]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(gradient)
                mean = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
                update = _orthogonal(
                    gradient.lerp(mean, momentum), group["ns_coefficients"], group["ns_steps"]
                )
                weight.mul_(1 - rate * group["weight_decay"])
                weight.add_(update, alpha=-0.2 * rate * max(weight.shape) ** 0.5)  # match_rms_adamw


def _orthogonal(matrix: torch.Tensor, coefficients: tuple[float, float, float], steps: int) -> torch.Tensor:
    """The nearest matrix with orthonormal rows or columns, roughly, by Newton-Schulz iterations."""
    a, b, c = coefficients
    tall = len(matrix) > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def _is_matrix(name: str, weight: torch.nn.Parameter) -> bool:
    return weight.ndim == 2 and not any(table in name for table in _TABLES)
