"""How often each guess of each head is right, counted on the model's own greedy text.

That text is what the heads are asked to guess while decoding. Each head is counted over the positions it
really has. Paper §2.3.3.

K heads · R ranks
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.engine import Engine
from medusa_core.trees.tree import TOP_K


@dataclass(frozen=True)
class Accuracies:
    """``shares[k][i]``: how often head k + 1's guess of rank i was right, over ``positions`` (head 1's)."""

    shares: list[list[float]]
    positions: int


def count_heads(
    engine: Engine, prompts: Iterable[Sequence[int]], new_tokens: int, top_k: int = TOP_K
) -> Iterator[Accuracies]:
    """Accuracies over the prompts so far, after each prompt: for a page that shows them grow or stops."""
    top_k = min(top_k, engine.target.vocab_size)
    heads = medusa_draft(engine).heads
    hits, counted = torch.zeros(heads.count, top_k), torch.zeros(heads.count)
    config = GenerationConfig(max_new_tokens=new_tokens)
    for prompt in prompts:
        new = [token for step in engine.stream(prompt, config) for token in step.emitted]
        tokens = [*prompt, *new][: engine.target.context]
        with torch.inference_mode():
            _, hidden = engine.target.read(tokens)
            hits_here, counted_here = _count(heads, hidden, tokens, len(prompt), top_k)
        hits += hits_here
        counted += counted_here
        shares = hits / counted.clamp(min=1)[:, None]
        # Equal within noise, a later guess may come out ahead; a tree search needs them in order.
        ordered = shares.sort(dim=1, descending=True).values
        yield Accuracies([[round(v, 4) for v in row] for row in ordered.tolist()], int(counted[0]))


def _count(
    heads: MedusaHeads, hidden: torch.Tensor, tokens: Sequence[int], prompt_length: int, top_k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hits [K, R] and positions [K] of one text; guesses about the prompt itself do not count."""
    guesses = heads(hidden[prompt_length - 1 :]).topk(top_k, dim=-1).indices.cpu()  # [K, T, R]
    hits, counted = torch.zeros(heads.count, top_k), torch.zeros(heads.count)
    for k in range(heads.count):
        # Head k + 1 at position t guesses token t + k + 2.
        truth = torch.tensor(tokens[prompt_length + k + 1 :])
        hits[k] = (guesses[k, : len(truth)] == truth[:, None]).sum(dim=0)
        counted[k] = len(truth)
    return hits, counted
