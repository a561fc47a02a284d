"""What a forward of transformers' model hands out beside its logits: ``Features`` of the rows.

Hidden states come from the model itself. It does not hand out what its final norm reads, nor the queries of
attention: these are recorded while the forward runs, in its own thread, and nothing stays on the model.

B texts · N rows · V vocabulary · d hidden size · H query heads · D head size
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from medusa_core.errors import MedusaError
from medusa_core.model.features import BEFORE_NORM, Features

# What families call the norm in front of their LM head.
_FINAL_NORMS = ("norm", "final_layernorm", "final_layer_norm", "ln_f")


@dataclass(frozen=True)
class Recording:
    """One forward: its logits [B, N, V], and what ``Features`` ask for, each [B, N, ...]."""

    logits: torch.Tensor
    states: list[torch.Tensor]

    def of(self, text: int = 0, count: int = 0) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Logits and states of one text, in its last ``count`` rows; 0: in all of them."""
        return self.logits[text, -count:], [state[text, -count:] for state in self.states]


def forward_with_features(model: Any, features: Features, **inputs: Any) -> Recording:
    """Run transformers' model on ``inputs``. Raises MedusaError for features that it does not show."""
    plain = [layer for layer in features.layers if layer != BEFORE_NORM]
    with ExitStack() as stack:
        summed = stack.enter_context(states_before_norm(model)) if len(plain) < len(features.layers) else []
        queries = stack.enter_context(_QueryRecorder()).queries if features.queries else []
        output = model(**inputs, output_hidden_states=bool(plain))
    states = [summed[0] if layer == BEFORE_NORM else output.hidden_states[layer] for layer in features.layers]
    config = model.config.get_text_config(decoder=True)
    if features.queries and len(queries) != config.num_hidden_layers:
        raise MedusaError(
            f"the queries of {config.model_type} cannot be read, it computes attention in a way of its own: "
            "use another --method"
        )
    count = inputs["input_ids"].shape[1]
    return Recording(output.logits, states + [_by_row(query, count) for query in queries])


def _by_row(query: torch.Tensor, count: int) -> torch.Tensor:
    """Queries in attention's layout to [B, N, H · D]; for a single row, heads may lie where rows do."""
    return query.reshape(len(query), -1, count, query.shape[-1]).transpose(1, 2).flatten(2)


@contextmanager
def states_before_norm(model: Any) -> Iterator[list[torch.Tensor]]:
    """Yield a list to which each forward of this thread adds what its final norm reads [B, N, d].

    Raises MedusaError for a model whose final norm is not found.
    """
    states: list[torch.Tensor] = []
    owner = threading.get_ident()

    def keep(_: nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
        if threading.get_ident() == owner:  # runs in other threads may use the model meanwhile
            states.append(arguments[0])

    hook = final_norm(model).register_forward_pre_hook(keep)
    try:
        yield states
    finally:
        hook.remove()


def final_norm(model: Any) -> nn.Module:
    """The norm in front of the LM head. Raises MedusaError where there is none of a known name."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model.model
    for name in _FINAL_NORMS:
        if isinstance(found := getattr(decoder, name, None), nn.Module):
            return found
    raise MedusaError(
        f"the final norm of {model.config.model_type} is not found, and what it reads is asked for: use "
        "another --method"
    )


class _QueryRecorder(TorchFunctionMode):
    """Records the queries [B, H, N, D] of each call of torch's attention, of which "sdpa" makes one a layer.

    All families call it with queries that are rotated already; the mode holds for its own thread alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queries: list[torch.Tensor] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            self.queries.append(args[0] if args else kwargs["query"])
        return func(*args, **kwargs)
