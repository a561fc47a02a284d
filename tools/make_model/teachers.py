"""Teachers: frozen models that say what a base learns on kinds of text that it is to keep.

The mean of several models' predictions is better than any one's, and hidden states near those of the first
one let its drafters go on fitting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from transformers import LlamaForCausalLM

from medusa_core.checkpoints.locate import locate_model
from medusa_core.errors import MedusaError
from medusa_core.training.losses import mean_divergence


class Teachers:
    """Frozen models of one vocabulary, the first of them also a teacher of hidden states."""

    def __init__(self, folders: Sequence[str], feature_weight: float, device: torch.device) -> None:
        self._models = [read_llama(folder) for folder in folders]
        torch.nn.ModuleList(self._models).to(device).eval().requires_grad_(False)
        self._feature_weight = feature_weight

    def loss(self, model: LlamaForCausalLM, tokens: torch.Tensor, trained: torch.Tensor) -> torch.Tensor:
        """KL(mean of the teachers ‖ model) in nats, plus the weighted distance of hidden states.

        ``tokens`` and ``trained`` are [B, T + 1]. The distance is the square of what the states differ by
        over the square of the teacher's, the mean over layers.
        """
        inputs, counted = tokens[:, :-1], trained[:, 1:]
        with torch.no_grad():
            found = [
                teacher.model(inputs, output_hidden_states=True, use_cache=False) for teacher in self._models
            ]
            spoken = torch.stack(
                [
                    teacher.lm_head(states.last_hidden_state[counted]).float().log_softmax(-1)
                    for teacher, states in zip(self._models, found, strict=True)
                ]
            )
            mean = spoken.logsumexp(0) - math.log(len(found))
        own = model.model(inputs, output_hidden_states=True, use_cache=False)
        divergence = mean_divergence(model.lm_head(own.last_hidden_state[counted]), mean)
        pairs = list(zip(own.hidden_states[1:], found[0].hidden_states[1:], strict=True))
        apart = sum(
            ((mine - its).square().sum() / its.square().sum() for mine, its in pairs), torch.zeros(())
        )
        return divergence + self._feature_weight * apart / len(pairs)


def read_llama(name: str) -> LlamaForCausalLM:
    """A model from a folder, or ``A=0.4,B=0.6``: the mean of several of one shape by their shares.

    Raises MedusaError for shares that are no numbers and for models whose weights differ in shape.
    """
    if "=" not in name:
        return LlamaForCausalLM.from_pretrained(locate_model(name), dtype=torch.float32)
    folders, shares = zip(*(part.rpartition("=")[::2] for part in name.split(",")), strict=True)
    try:
        weights = [float(share) for share in shares]
    except ValueError as error:
        raise MedusaError(f"cannot read shares from {name!r}: write A=0.4,B=0.6") from error
    models = [read_llama(folder) for folder in folders]
    states = [model.state_dict() for model in models]
    if any({key: value.shape for key, value in state.items()} != _shapes(states[0]) for state in states):
        raise MedusaError(f"the models of {name!r} differ in shape: name several of one architecture")
    for key, value in states[0].items():
        value.copy_(
            sum(share * state[key] for share, state in zip(weights, states, strict=True)) / sum(weights)
        )
    return models[0]


def _shapes(state: dict[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {key: value.shape for key, value in state.items()}
