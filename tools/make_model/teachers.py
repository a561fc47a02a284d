"""Teachers: frozen models that say what a base learns on the kinds of text it is to keep.

The mean of several models' predictions is better than any one's, and hidden states that stay near the
first one's keep its drafters fitting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from transformers import LlamaForCausalLM

from medusa_core.checkpoints.locate import as_folder, locate_model
from medusa_core.errors import MedusaError
from medusa_core.training.losses import mean_divergence


class Teachers:
    """Frozen models of one vocabulary; the first also teaches hidden states."""

    def __init__(self, folders: Sequence[str], feature_weight: float, student: LlamaForCausalLM) -> None:
        """Puts them on the device of the student. Raises MedusaError for one that does not fit it."""
        self._models = [_read(folder) for folder in folders]
        self._feature_weight = feature_weight
        for number, (folder, model) in enumerate(zip(folders, self._models, strict=True)):
            names = ["vocab_size"]
            if feature_weight and not number:
                names += ["hidden_size", "num_hidden_layers"]
            for name in names:
                its, own = getattr(model.config, name), getattr(student.config, name)
                if its != own:
                    raise MedusaError(
                        f"the teacher {folder} has {name} {its}, its student {own}: name another"
                    )
        torch.nn.ModuleList(self._models).to(student.device).eval().requires_grad_(False)

    @property
    def first(self) -> LlamaForCausalLM:
        """The one that also teaches hidden states."""
        return self._models[0]

    def loss(self, model: LlamaForCausalLM, tokens: torch.Tensor, trained: torch.Tensor) -> torch.Tensor:
        """KL(mean of the teachers ‖ model) in nats, plus the weighted distance of hidden states.

        ``tokens`` and ``trained`` are [B, T + 1]. The distance is the squared norm of the difference divided
        by the squared norm of the teacher's states, averaged over layers.
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
        if not self._feature_weight:
            return divergence
        pairs = list(zip(own.hidden_states[1:], found[0].hidden_states[1:], strict=True))
        apart = torch.stack([(mine - its).square().sum() / its.square().sum() for mine, its in pairs])
        return divergence + self._feature_weight * apart.mean()


def read_llama(name: str) -> LlamaForCausalLM:
    """A model from a folder, or ``A=0.4,B=0.6``: the mean of several of one shape, weighted by their shares.

    Raises MedusaError for shares that are not numbers above 0 and for models whose weights differ in shape.
    """
    if "=" not in name or as_folder(name):
        return _read(name)
    folders, shares = zip(*(part.rpartition("=")[::2] for part in name.split(",")), strict=True)
    weights = [_share(share, name) for share in shares]
    models = [_read(folder) for folder in folders]
    states = [model.state_dict() for model in models]
    shapes = [{key: value.shape for key, value in state.items()} for state in states]
    if any(shape != shapes[0] for shape in shapes):
        raise MedusaError(f"the models of {name!r} differ in shape: name several of one architecture")
    # All of the mean is computed before any of it is written: tied weights have two names.
    mean = {
        key: sum(weight * state[key] for weight, state in zip(weights, states, strict=True)) / sum(weights)
        for key in states[0]
    }
    models[0].load_state_dict(mean)
    return models[0]


def _read(name: str) -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(locate_model(name), dtype=torch.float32)


def _share(word: str, name: str) -> float:
    try:
        share = float(word)
    except ValueError:
        share = 0.0
    if not (math.isfinite(share) and share > 0):
        raise MedusaError(f"cannot read shares above 0 from {name!r}: write A=0.4,B=0.6")
    return share
