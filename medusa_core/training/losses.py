"""Pure loss functions over hidden states and tokens. Knows nothing about models, files or optimizers.

B windows · T tokens of a window · K heads · V vocabulary · d hidden size
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from medusa_core.heads import MedusaHeads

IGNORED = -100


@dataclass(frozen=True)
class HeadScores:
    """Per head: mean cross-entropy (carries the gradient), and shares of top-1 and top-5 hits. [K] each."""

    loss: torch.Tensor
    top1: torch.Tensor
    top5: torch.Tensor


def shifted_targets(tokens: torch.Tensor, head: int) -> torch.Tensor:
    """What head ``head`` (1-based) has to guess at each position: [B, T] → [B, T].

    At position t that is token t + head + 1; positions past the end of the window hold ``IGNORED``.
    """
    shift = head + 1
    targets = torch.full_like(tokens, IGNORED)
    targets[:, : tokens.shape[1] - shift] = tokens[:, shift:]
    return targets


def head_scores(heads: MedusaHeads, hidden: torch.Tensor, tokens: torch.Tensor) -> HeadScores:
    """Score every head on hidden states [B, T, d] of the tokens [B, T]. Paper §2.2.1.

    Each head is averaged over the positions it really has, so deep heads are not under-counted.
    """
    features = heads.features(hidden.flatten(0, 1))
    loss, top1, top5 = [], [], []
    for k in range(heads.count):
        targets = shifted_targets(tokens, k + 1).flatten()
        real = targets != IGNORED
        weight = heads.lm_weight if heads.shares_lm_head else heads.lm_weight[k]
        logits = F.linear(features[k], weight).float()
        loss.append(F.cross_entropy(logits, targets, ignore_index=IGNORED))
        with torch.no_grad():
            target_logit = logits.gather(1, targets.clamp(min=0)[:, None])
            # A guess is a top-n hit when fewer than n tokens score higher; cheaper than sorting V.
            higher = (logits > target_logit).sum(dim=1)
            top1.append(((higher < 1) & real).sum() / real.sum())
            top5.append(((higher < 5) & real).sum() / real.sum())
    return HeadScores(torch.stack(loss), torch.stack(top1), torch.stack(top5))


def weighted_sum(losses: torch.Tensor, decay: float) -> torch.Tensor:
    """Σ_k decay^k · loss_k, k from 1: the Medusa-1 loss with λ_k = decay^k (paper §2.2.1)."""
    powers = torch.arange(1, len(losses) + 1, device=losses.device)
    return (losses * decay**powers).sum()
