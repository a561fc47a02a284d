"""A tiny random block drafter."""

from __future__ import annotations

from dataclasses import replace

import torch

from medusa_core.drafters.block.drafter import BlockDraft, load
from medusa_core.drafters.block.files import save
from medusa_core.drafters.block.model import BlockModel
from medusa_core.drafters.eagle3.shape import DraftShape


def write(folder, model, seed=0, block=4, layers=2):
    """The folder of a drafter for ``model``, a small Llama."""
    torch.manual_seed(seed)
    config = model.config
    shape = DraftShape(
        hidden=config.hidden_size, intermediate=40, heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head_size=config.head_dim or config.hidden_size // config.num_attention_heads,
        vocabulary=config.vocab_size, draft_vocabulary=config.vocab_size, rope_theta=5000.0,
        layers=(0, 1, -1),
    )  # fmt: skip
    head = model.get_output_embeddings().weight.detach()
    drafter = BlockModel(shape, block, layers, head)
    with torch.no_grad():
        for layer in drafter.layers:  # so that it matters what a row sees
            layer.self_attn.q_proj.weight *= 4
            layer.self_attn.o_proj.weight *= 4
    save(drafter, folder, "tiny", torch.float32)
    return folder


def block_draft(target, folder) -> BlockDraft:
    """A random drafter, through its files."""
    return load(write(folder, target.model), target)


def with_block(engine, folder):
    """The engine with such a drafter in addition to its others."""
    return replace(engine, drafts={**engine.drafts, "block": block_draft(engine.target, folder)})
