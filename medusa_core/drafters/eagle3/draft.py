"""An EAGLE-3 draft model as it is loaded for a target, with the target's embedding.

V vocabulary · d hidden size
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn

from medusa_core.checkpoints.files import State, require_finite
from medusa_core.drafters import Draft
from medusa_core.drafters.eagle3 import FEATURES
from medusa_core.drafters.eagle3.captured_growth import CapturedGrowth
from medusa_core.drafters.eagle3.files import read_draft, read_shape
from medusa_core.drafters.eagle3.model import DraftModel, rotary_table
from medusa_core.drafters.eagle3.network import NativeNetwork, Network
from medusa_core.drafters.eagle3.shape import EMBEDDING, DraftShape, feature_layers, states_read
from medusa_core.errors import MedusaError
from medusa_core.llama.library import Library
from medusa_core.llama.weights import NotLlamaError
from medusa_core.model.captured_forward import Capture
from medusa_core.model.rotary import RotaryTable
from medusa_core.model.target import Target

_OTHER = "it belongs to another model, so give --heads made for this one, or --heads none"


@dataclass(frozen=True)
class LayerDraft(Draft):
    """A network of a layer or a few, on the device of the target's LM head and in its dtype."""

    model: Any
    embedding: torch.Tensor  # [V, d], the target's own wherever possible
    rotary: RotaryTable = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rotary", rotary_table(self.model.shape, self.embedding.device))

    def tensors(self) -> Iterator[torch.Tensor]:
        """Its own weights, without what it shares with the target."""
        yield from self.model.parameters()


@dataclass(frozen=True)
class Eagle3Draft(LayerDraft):
    """A draft model; ``layers`` are the states of the target that it fuses, as ``Features`` name them."""

    native: ClassVar[type[NativeNetwork]] = NativeNetwork  # how C computes such a layer

    model: DraftModel
    layers: tuple[int, ...]
    library: Library | None = None  # computes the layer in C
    capture: Capture | None = None  # captures the growth of a tree on a GPU

    @classmethod
    def filled(
        cls,
        model: DraftModel,
        state: State,
        target: Target,
        embedding: torch.Tensor,
        layers: tuple[int, ...],
        notes: tuple[str, ...],
    ) -> Self:
        """A draft for a target, whose network is on the meta device and gets tensors that fit."""
        load_tensors(model, state, target.output_device, target.dtype)
        model.requires_grad_(False).eval()
        return cls(model, embedding, layers, target.library, target.capture, notes=notes)

    @cached_property
    def network(self) -> Network:
        """The draft model as drafters run it; C packs its weights at the first run."""
        if self.library is not None:
            try:
                return self.native(self.model, self.embedding, self.library)
            except NotLlamaError:
                pass  # torch computes more kinds of model
        return Network(self.model, self.embedding)

    @cached_property
    def growth(self) -> CapturedGrowth | None:
        """Grows a tree in one captured graph; None where nothing can be captured."""
        return CapturedGrowth(self.model, self.embedding, self.capture) if self.capture else None

    @property
    def label(self) -> str:
        return "EAGLE-3"


def load(folder: Path, target: Target) -> Eagle3Draft:
    """Read a draft model for a target. Raises MedusaError when it is damaged or does not fit."""
    shape = read_shape(folder)
    _require_same_sizes(shape, target, folder)
    state = read_draft(folder, shape)
    own = state.pop(EMBEDDING, None)
    require_finite(f"EAGLE-3 in {folder}", state, target.dtype)
    table = target_embedding(target)
    notes: tuple[str, ...] = ()
    if own is not None and not torch.equal(own.to(table), table):
        notes = (f"{EMBEDDING} is not the model's own, which is used",)
    return build(shape, state, target, table, notes)


def build(
    shape: DraftShape, state: State, target: Target, embedding: torch.Tensor, notes: tuple[str, ...] = ()
) -> Eagle3Draft:
    """A draft model from tensors that fit, placed for a target."""
    with torch.device("meta"):
        model = DraftModel(shape)
    count = target.config.num_hidden_layers
    layers = states_read(shape.layers or feature_layers(count), count)
    return Eagle3Draft.filled(model, state, target, embedding, layers, notes)


def load_tensors(model: nn.Module, state: State, device: torch.device, dtype: torch.dtype) -> None:
    """Load tensors into a network that has none yet, on a device and in a dtype."""
    placed = {
        name: tensor.to(device, dtype if tensor.is_floating_point() else None)
        for name, tensor in state.items()
    }
    model.load_state_dict(placed, assign=True)


def target_embedding(target: Target) -> torch.Tensor:
    """The target's embedding [V, d] on the device of its LM head; the same memory where that is possible."""
    weight = target.held.embedding()
    if weight is None or weight.is_meta:  # accelerate fetches it for each call
        with torch.no_grad():
            module = target.held.weights.get_input_embeddings()
            weight = module(torch.arange(target.vocab_size, device=target.device))
    return weight.detach().to(target.output_device, target.dtype)


def _require_same_sizes(shape: DraftShape, target: Target, folder: Path) -> None:
    width, count = target.config.hidden_size, target.config.num_hidden_layers
    if shape.hidden != width:
        raise MedusaError(f"EAGLE-3 in {folder} is {shape.hidden} wide, the model {width}: {_OTHER}")
    if shape.vocabulary != target.vocab_size:
        raise MedusaError(
            f"EAGLE-3 in {folder} knows {shape.vocabulary} tokens, the model {target.vocab_size}: {_OTHER}"
        )
    layers = shape.layers or feature_layers(count)
    if len(layers) != FEATURES or not all(0 <= layer <= count for layer in layers):
        raise MedusaError(
            f"EAGLE-3 in {folder} reads layers {', '.join(map(str, layers))}, the model has {count}: {_OTHER}"
        )
