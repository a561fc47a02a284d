"""How often each guess of each head is right, counted on the model's own greedy text.

That text is what the heads are asked to guess while decoding. Each head is counted over the positions it
really has. Paper §2.3.3.

K heads · R ranks
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

import torch

from medusa_core.config import GenerationConfig
from medusa_core.drafters import HeadsDraft, method
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.trees.tree import TOP_K


@dataclass(frozen=True)
class Accuracies:
    """``shares[k][i]``: how often head k + 1's guess of rank i was right, over ``positions`` (head 1's)."""

    shares: list[list[float]]
    positions: int


def heads_of(engine: Engine) -> tuple[str, HeadsDraft]:
    """The heads that are loaded, the first of several, with their method. Raises MedusaError without any."""
    for name, draft in engine.drafts.items():
        if isinstance(draft, HeadsDraft):
            return name, draft
    if not engine.drafts:
        raise MedusaError(f"{engine.info.base} has no heads: name them with --heads")
    name, other = next(iter(engine.drafts.items()))
    flags = " and ".join(f"--{item.name.replace('_', '-')}" for item in fields(method(name).settings))
    raise MedusaError(
        f"{other.label} makes a new tree in every step by its own probabilities, so there are no heads whose "
        f"guesses could be counted for a fixed one: shape its drafts by {flags}, and compare with bench"
    )


def count_heads(engine: Engine, prompts: Iterable[Sequence[int]], new_tokens: int) -> Iterator[Accuracies]:
    """Accuracies over the prompts so far, after each prompt: for a page that shows them grow or stops."""
    top_k = min(TOP_K, engine.target.vocab_size)
    name, draft = heads_of(engine)
    hits = torch.zeros(draft.count, top_k, dtype=torch.float32)  # [K, R]
    counted = hits.new_zeros(draft.count)  # positions [K]
    config = GenerationConfig(max_new_tokens=new_tokens, method=name)
    for prompt in prompts:
        new = [token for step in engine.stream(prompt, config) for token in step.emitted]
        tokens = [*prompt, *new][: engine.target.context]
        # Guesses about the prompt itself do not count. Head k + 1 at position t guesses token t + k + 2.
        guesses = draft.guesses(engine.target, tokens, top_k, len(prompt) - 1).cpu()
        for k in range(draft.count):
            truth = torch.tensor(tokens[len(prompt) + k + 1 :])
            hits[k] += (guesses[k, : len(truth)] == truth[:, None]).sum(dim=0)
            counted[k] += len(truth)
        shares = hits / counted.clamp(min=1)[:, None]
        # Equal within noise, a later guess may come out ahead; a tree search needs them in order.
        ordered = shares.sort(dim=1, descending=True).values
        yield Accuracies([[round(v, 4) for v in row] for row in ordered.tolist()], int(counted[0]))
