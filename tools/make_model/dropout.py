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
        return F.dropout(output, self.rate, training=module.training and self.rate > 0)
