"""Pure loss functions over hidden states, logits and tokens.

B windows · T tokens of a window · K heads · V vocabulary · d hidden size. ``trained`` [B, T] marks the tokens
whose prediction counts: the answers of a dialogue, all tokens of plain text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from medusa_core.drafters.medusa.heads import MedusaHeads


@dataclass(frozen=True)
class HeadScores:
    """Per head: mean cross-entropy, the shares of top-1 and top-5 hits, and of how many guesses. [K] each."""

    loss: torch.Tensor
    top1: torch.Tensor
    top5: torch.Tensor
    count: torch.Tensor


def head_losses(
    heads: MedusaHeads, hidden: torch.Tensor, tokens: torch.Tensor, trained: torch.Tensor
) -> torch.Tensor:
    """Mean cross-entropy of every head [K] on hidden states [B, T, d] of the tokens [B, T]. Paper §2.2.1.

    Each head is averaged over the positions it really has, so deep heads are not under-counted; a head
    without any has loss 0.
    """
    return mean_losses(predictions(heads, hidden, tokens, trained))


def mean_losses(predicted: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """Mean cross-entropy [K] by the logits [n, V] and targets [n] of one head after the other."""
    return torch.stack([mean_cross_entropy(logits, targets) for logits, targets in predicted])


def scores_of(predicted: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> HeadScores:
    """Losses and hit rates by the logits [n, V] and targets [n] of one head after the other."""
    loss, top1, top5, counts = [], [], [], []
    for logits, targets in predicted:
        loss.append(mean_cross_entropy(logits, targets))
        # A guess is a top-n hit when fewer than n tokens score higher; cheaper than sorting V.
        higher = (logits > logits.gather(1, targets[:, None])).sum(dim=1)
        count = max(1, len(targets))
        top1.append((higher < 1).float().sum() / count)
        top5.append((higher < 5).float().sum() / count)
        counts.append(len(targets))
    losses = torch.stack(loss)
    return HeadScores(
        losses, torch.stack(top1), torch.stack(top5), torch.tensor(counts, device=losses.device)
    )


def next_token_loss(logits: torch.Tensor, tokens: torch.Tensor, trained: torch.Tensor) -> torch.Tensor:
    """The base's own loss: mean cross-entropy of logits [B, T, V] against the next token of [B, T]."""
    counted = trained[:, 1:]
    return mean_cross_entropy(logits[:, :-1][counted].float(), tokens[:, 1:][counted])


def distillation_loss(student: torch.Tensor, teacher: torch.Tensor, trained: torch.Tensor) -> torch.Tensor:
    """Mean KL(teacher ‖ student) in nats where the next token counts; logits [B, T, V]. Paper §2.3.2."""
    counted = trained[:, 1:]
    return mean_divergence(student[:, :-1][counted], teacher[:, :-1][counted])


def mean_divergence(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Mean KL(teacher ‖ student) in nats over rows of logits [n, V]; 0 when there are none."""
    wanted, got = teacher.float().log_softmax(dim=-1), student.float().log_softmax(dim=-1)
    return F.kl_div(got, wanted, reduction="sum", log_target=True) / max(1, len(got))


def weighted_sum(losses: torch.Tensor, decay: float) -> torch.Tensor:
    """Σ_k decay^k · loss_k, k from 1: the Medusa-1 loss with λ_k = decay^k (paper §2.2.1)."""
    powers = torch.arange(1, len(losses) + 1, dtype=torch.float32, device=losses.device)
    return (losses * decay**powers).sum()


def sine_weight(peak: float, step: int, steps: int) -> float:
    """λ0 of a step when it rises as sin(π/2 · step / steps) to ``peak`` (paper appendix B.2)."""
    return peak * math.sin(math.pi / 2 * (step + 1) / steps)


def predictions(
    heads: MedusaHeads, hidden: torch.Tensor, tokens: torch.Tensor, trained: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Logits [n, V] and targets [n] of one head after the other, over the positions that count for it.

    Head k (1-based) at position t guesses token t + k + 1, so its last k + 1 positions have no target. One
    head at a time, because the logits of all of them would take K times the memory.
    """
    features = heads.features(hidden.flatten(0, 1)).unflatten(1, hidden.shape[:2])
    for k in range(heads.count):
        shift = k + 2
        counted = trained[:, shift:]
        weight = heads.lm_weight if heads.shares_lm_head else heads.lm_weight[k]
        logits = F.linear(features[k, :, :-shift][counted], weight)
        yield logits.float(), tokens[:, shift:][counted]


def mean_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean over [n] targets; 0, with a gradient of 0, when there are none."""
    return F.cross_entropy(logits, targets, reduction="sum") / max(1, len(targets))
