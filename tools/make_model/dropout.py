"""Dropout for a decoder that has none: behind every attention and MLP, before the residual sum.

Llama's own configuration knows dropout of attention weights only. The rate is set between steps, so that a
run can begin without it. Draws come from torch's generator, which the loop seeds at every step.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F
from transformers import LlamaForCausalLM


class Dropout:
    """One rate for all decoder layers of a model; nothing is dropped in eval mode or at rate 0."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        self.rate = 0.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.register_forward_hook(self._drop)
            layer.mlp.down_proj.register_forward_hook(self._drop)

    def _drop(self, module: torch.nn.Module, inputs: tuple, output: torch.Tensor) -> torch.Tensor:
        if not self.rate or not module.training:
            return output
        if output.device.type != "cpu":
            return F.dropout(output, self.rate)
        # torch draws a random number for each value, one after the other, a third of a small model's step.
        # A byte for each is eight times as fast and gives the rate to 1/256.
        dropped = min(255, max(1, round(self.rate * 256)))
        kept = byte_mask(output.numel(), dropped).view(output.shape)
        return output * (kept * (256 / (256 - dropped))).to(output.dtype)


@torch.library.custom_op("medusa_core::byte_mask", mutates_args=())
def byte_mask(size: int, dropped: int) -> torch.Tensor:
    """[size] of bool on the CPU, false with a probability of ``dropped`` / 256."""
    words = torch.empty((size + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    return words.view(torch.uint8)[:size] >= dropped


@byte_mask.register_fake
def _(size: int, dropped: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.bool)
