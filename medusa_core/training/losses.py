"""Pure loss functions over hidden states and tokens. Knows nothing about models, files or optimizers.

B windows · T tokens of a window · K heads · V vocabulary · d hidden size
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from medusa_core.heads import MedusaHeads


@dataclass(frozen=True)
class HeadScores:
    """Per head: mean cross-entropy and the shares of top-1 and top-5 hits. [K] each."""

    loss: torch.Tensor
    top1: torch.Tensor
    top5: torch.Tensor


def head_losses(heads: MedusaHeads, hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of every head [K] on hidden states [B, T, d] of the tokens [B, T]. Paper §2.2.1.

    Each head is averaged over the positions it really has, so deep heads are not under-counted.
    """
    return torch.stack(
        [F.cross_entropy(logits, targets) for logits, targets in _predictions(heads, hidden, tokens)]
    )


@torch.no_grad()
def head_scores(heads: MedusaHeads, hidden: torch.Tensor, tokens: torch.Tensor) -> HeadScores:
    """Losses and hit rates of every head, for evaluation; shapes as in ``head_losses``."""
    loss, top1, top5 = [], [], []
    for logits, targets in _predictions(heads, hidden, tokens):
        loss.append(F.cross_entropy(logits, targets))
        # A guess is a top-n hit when fewer than n tokens score higher; cheaper than sorting V.
        higher = (logits > logits.gather(1, targets[:, None])).sum(dim=1)
        top1.append((higher < 1).float().mean())
        top5.append((higher < 5).float().mean())
    return HeadScores(torch.stack(loss), torch.stack(top1), torch.stack(top5))


def _predictions(
    heads: MedusaHeads, hidden: torch.Tensor, tokens: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Logits [T', V] and targets [T'] of one head after the other, over the positions it has.

    Head k (1-based) at position t guesses token t + k + 1, so its last k + 1 positions have no target. One
    head at a time, because the logits of all of them would take K times the memory.
    """
    features = heads.features(hidden.flatten(0, 1)).unflatten(1, hidden.shape[:2])
    for k in range(heads.count):
        shift = k + 2
        weight = heads.lm_weight if heads.shares_lm_head else heads.lm_weight[k]
        logits = F.linear(features[k, :, :-shift].flatten(0, 1), weight)
        yield logits.float(), tokens[:, shift:].flatten()


def weighted_sum(losses: torch.Tensor, decay: float) -> torch.Tensor:
    """Σ_k decay^k · loss_k, k from 1: the Medusa-1 loss with λ_k = decay^k (paper §2.2.1)."""
    powers = torch.arange(1, len(losses) + 1, device=losses.device)
    return (losses * decay**powers).sum()
