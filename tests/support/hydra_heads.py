"""Tiny random Hydra heads of both kinds, and drafting by them slowly and obviously."""

from __future__ import annotations

from dataclasses import replace

import tiny
import torch
from transformers import LlamaConfig, LlamaModel, PreTrainedModel

from medusa_core.drafters.hydra.draft import HydraDraft
from medusa_core.drafters.hydra.heads import HydraHeads
from medusa_core.engine import Engine
from medusa_core.trees.tree import Topology

HEADS = 3


def random_hydra(
    model: PreTrainedModel, *, prefix: bool, count: int = HEADS, layers: int = 2, seed: int = 0
) -> HydraHeads:
    """Heads with random weights: their guesses depend on every token before them."""
    lm_head = model.get_output_embeddings().weight
    config = model.config.get_text_config() if prefix else None
    return tiny.randomised(HydraHeads.fresh(lm_head, count, layers, config), seed)


def hydra_draft(model: PreTrainedModel, *, prefix: bool) -> HydraDraft:
    """Such heads as loaded for a target."""
    return HydraDraft(random_hydra(model, prefix=prefix))


def with_hydra(engine: Engine, *, prefix: bool = True) -> Engine:
    """The engine with such heads in addition to its other drafters."""
    return replace(engine, drafts={**engine.drafts, "hydra": hydra_draft(engine.target.model, prefix=prefix)})


def slow_state(heads: HydraHeads, config: LlamaConfig, hidden: torch.Tensor) -> torch.Tensor:
    """What the heads read besides the path, from the hidden states [T, d] of the whole text: [d]."""
    if heads.prefix is None:
        return hidden[-1]
    one = LlamaConfig(**(config.to_dict() | {"num_hidden_layers": 1}))
    whole = LlamaModel(one).eval()  # transformers' own model of one layer, over all rows again
    missing, unknown = whole.load_state_dict(heads.prefix.state_dict(), strict=False)
    assert (missing, unknown) == (["embed_tokens.weight"], [])
    return whole(inputs_embeds=hidden[None], use_cache=False).last_hidden_state[0, -1]


@torch.no_grad()
def slow_tree(
    heads: HydraHeads, model: PreTrainedModel, text: list[int], root: int, tree: Topology
) -> tuple[list[int], list[float]]:
    """Tokens and log q of all nodes of a tree after ``text``, one head call for every node."""
    hidden = model(torch.tensor([text]), output_hidden_states=True).hidden_states[-1][0]
    state = slow_state(heads, model.config, hidden)
    embed = model.get_input_embeddings()
    tokens: dict[tuple[int, ...], int] = {(): root}
    logq = [0.0]
    for choice in tree.choices:
        path = [tokens[choice[:end]] for end in range(len(choice))]
        x = torch.cat([state, *(embed(torch.tensor(token)) for token in path)])
        head = heads.head(len(choice) - 1)
        y = head.residual(x) + torch.nn.functional.silu(head.linear(x))
        for block in head.further:
            y = y + torch.nn.functional.silu(block(y))
        shares = head.last(y).log_softmax(-1)
        best = shares.argsort(descending=True)[choice[-1]]
        tokens[choice] = int(best)
        logq.append(float(shares[best]))
    return [root, *(tokens[choice] for choice in tree.choices)], logq
