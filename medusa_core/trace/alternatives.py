"""What the model predicts after a node, for the trace: its likeliest tokens, and p at other temperatures.

A reader of the trace has no logits, only p at the run's temperature T. With pmax the largest p of a place,
T · ln(p / pmax) is the logit below the largest one; at another temperature T' it gives
ln p' = T · ln(p / pmax) / T' − log Z(T'). log Z and the entropy are recorded on a few temperatures; between
them the reader has the likeliest tokens exactly and interpolates the rest (`assets/web/heat.js`).

N nodes · R recorded rows · V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from medusa_core.acceptance.sampling import COLDEST, ENTROPY_GUARD
from medusa_core.decoding import Step
from medusa_core.trees.tree import path_to

TEMPERATURES = (0.35, 0.7, 1.0, 1.4, 2.0)
ALTERNATIVES = 5
CHUNK = 1 << 16  # logits taken at once: the buffers for them stay in a processor's cache
# A processor is a hundred times slower with numbers below 1e-38, which float32 holds with fewer digits. They
# come at low temperatures, and nothing that a trace shows depends on them.
COLD = 0.5
SMALLEST = 1e-18  # smallest number with a square that is not 0


@dataclass(frozen=True)
class Answers:
    """What the model predicts in R places, with log Z being that of the logits minus their largest.

    ``p`` and ``tokens`` [R, 5] of the likeliest tokens and ``own_entropy`` [R] are at the run's temperature,
    ``log_z`` and ``entropy`` [R, T] at TEMPERATURES, ``node_p`` [M] is that of the tokens asked for.
    """

    tokens: torch.Tensor
    p: torch.Tensor
    log_z: torch.Tensor
    entropy: torch.Tensor
    own_entropy: torch.Tensor
    node_p: torch.Tensor


def recorded_rows(parents: Sequence[int], path: Sequence[int]) -> list[int]:
    """Nodes of which the trace holds what comes after: those that judge others, and the end of the path."""
    return sorted({parent for parent in parents if parent >= 0} | {path[-1]})


@torch.inference_mode()
def answers(logits: torch.Tensor, temperature: float, rows: torch.Tensor, tokens: torch.Tensor) -> Answers:
    """What ``logits`` [R, V] say, and p of each of ``tokens`` [M] at its row; ``rows`` [M] rise."""
    own = temperature if temperature > 0 else 1.0
    size = max(1, CHUNK // logits.shape[1])
    cold = max(own, COLDEST)
    ends = torch.searchsorted(rows, torch.arange(size, len(logits) + size, size)).tolist()
    rows, tokens = rows.to(logits.device), tokens.to(logits.device)
    # Made once: the system hands out fresh memory of this size page by page.
    buffers = logits.new_empty(3, min(size, len(logits)), logits.shape[1], dtype=torch.float32)
    found, first = [], 0
    for start, end in zip(range(0, len(logits), size), ends, strict=True):
        part = logits[start : start + size]
        gaps, weights, guarded = buffers[:, : len(part)]
        gaps.copy_(part)
        gaps -= gaps.amax(dim=-1, keepdim=True)
        values, ids = gaps.topk(min(ALTERNATIVES, gaps.shape[1]), dim=-1)
        log_z, entropy = _sums(gaps, own, weights, guarded)
        places = rows[first:end] - start
        node_p = (gaps[places, tokens[first:end]] / cold - log_z[places, -1]).exp_()
        p = (values / cold - log_z[:, -1:]).exp_()
        found.append((ids, p, log_z[:, :-1], entropy[:, :-1], entropy[:, -1], node_p))
        first = end
    return Answers(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def _sums(
    gaps: torch.Tensor, own: float, weights: torch.Tensor, guarded: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """log Z and entropy [R, T + 1] of ``gaps`` [R, V] at TEMPERATURES and ``own``; the others are buffers."""
    totals, sums, before = {}, {}, 0.0
    for heat in _in_chains({*TEMPERATURES, own}):
        if heat * 2 == before:  # e^(x / T)² = e^(x / (T / 2)), without another e^x
            (weights if heat > COLD else weights.clamp_(min=SMALLEST)).square_()
        elif heat > COLD:
            torch.mul(gaps, 1 / heat, out=weights).exp_()
        else:
            scale = max(heat, COLDEST)
            torch.clamp(gaps, min=-80 * scale, out=weights).div_(scale).exp_()
        totals[heat] = weights.sum(dim=-1)
        torch.add(weights, totals[heat][:, None], alpha=ENTROPY_GUARD, out=guarded).log_()
        sums[heat] = torch.linalg.vecdot(weights, guarded)
        before = heat
    heats = (*TEMPERATURES, own)
    total = torch.stack([totals[heat] for heat in heats], dim=1)
    log_z = total.log()
    # −Σ p ln(p + guard) with p = weight / Z
    return log_z, log_z - torch.stack([sums[heat] for heat in heats], dim=1) / total


def _in_chains(heats: set[float]) -> list[float]:
    """The temperatures in an order in which as many as possible follow the one twice as high."""
    chains: list[float] = []
    for heat in sorted(heats, reverse=True):
        each = heat
        while each in heats and each not in chains:
            chains.append(each)
            each /= 2
    return chains


def significant_all(values: torch.Tensor, digits: int) -> list[float]:
    """Round many values above or below 0, each to as many significant digits."""
    values = values.double().cpu()
    power = (digits - 1 - values.abs().clamp(min=1e-300).log10().floor()).clamp(max=300)
    scale = torch.pow(10.0, power.abs())
    shifted = torch.where(power >= 0, (values * scale).round() / scale, (values / scale).round() * scale)
    return shifted.tolist()


@dataclass(frozen=True)
class Penalised:
    """The model's likeliest token at a place, and how many copies of it stand in the window there."""

    row: int  # index among the recorded rows
    token: int
    copies: int


class PenalisedChoices:
    """Follows the text of a run, and counts copies in its windows."""

    def __init__(self, prompt: Sequence[int], window: int) -> None:
        self._text = list(prompt)
        self._window = window

    def of(
        self, step: Step, logits: torch.Tensor, nodes: Sequence[int], index: torch.Tensor
    ) -> list[Penalised]:
        """Penalised choices of a step; ``logits`` [R, V] are the processed ones of ``nodes`` [R]."""
        if step.logits is step.model_logits:
            return []
        own = step.model_logits.index_select(0, index).max(dim=-1).indices
        both = torch.stack([own, logits.max(dim=-1).indices]).tolist()
        tokens, parents = step.tree.tokens.tolist(), step.tree.parents
        found = [
            Penalised(row, mine, self._copies(tokens, parents, nodes[row], mine))
            for row, (mine, chosen) in enumerate(zip(*both, strict=True))
            if mine != chosen
        ]
        self._text += [tokens[node] for node in step.verdict.path]
        return found

    def _copies(self, tokens: Sequence[int], parents: Sequence[int], node: int, token: int) -> int:
        """Copies of ``token`` in the window after ``node``."""
        path = [tokens[each] for each in path_to(node, parents)][-self._window :]
        rest = self._window - len(path)
        return path.count(token) + (self._text[-rest:].count(token) if rest else 0)
