"""Map the public names of Hydra's tensors to modules and back; strict, as gaps would be filled at random.

i = head, j = layer. arch ``mlp``: ``hydra_mlp.{i}.{j}.linear`` and ``.res_connection`` (of the first layer
alone), ``hydra_lm_head.{i}``. arch ``prefix-mlp`` counts a dropout before each of them too: layer j is
``hydra_mlp.{i}.{2j + 1}``, the last ``hydra_lm_head.{i}.1``; its decoder layer is
``prefix_embeding_layer.layers.0`` (so spelt). ``input_embed_fn.weight`` is a copy of the base's embedding.

K heads · L layers · V vocabulary · d hidden size
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

import torch
from torch import nn

from medusa_core.checkpoints.files import State, require_tensors
from medusa_core.checkpoints.heads import require_width
from medusa_core.drafters.hydra.heads import HydraHead, HydraHeads
from medusa_core.drafters.hydra.prefix import PrefixLayer
from medusa_core.errors import MedusaError

EMBEDDING = "input_embed_fn.weight"
PREFIX = "prefix_embeding_layer."
PREFIX_EMBEDDING = f"{PREFIX}embed_tokens.weight"  # never read: the layer's inputs are hidden states
_ANGLES = "rotary_emb.inv_freq"  # the angles follow from the config
_BLOCK = re.compile(r"hydra_mlp\.(\d+)\.(\d+)\.linear\.weight")
_AGAIN = "fetch or save them again"


class Arch(StrEnum):
    """Kinds of heads by ``hydra_head_arch``, and how their tensors are called."""

    MLP = "mlp"
    PREFIX_MLP = "prefix-mlp"

    def block(self, head: int, layer: int, part: str) -> str:
        """The name of a part of a block."""
        number = layer if self is Arch.MLP else 2 * layer + 1
        return f"hydra_mlp.{head}.{number}.{part}"

    def last(self, head: int) -> str:
        """The name of the layer that gives the logits."""
        return f"hydra_lm_head.{head}" + ("" if self is Arch.MLP else ".1")


@dataclass(frozen=True)
class Kind:
    """What the config says of heads: their kind, their number and their layers."""

    arch: Arch
    heads: int
    layers: int


def is_unused(name: str) -> bool:
    """Whether heads do not need a tensor that the public code saves, since the base or its config has it."""
    return name in (EMBEDDING, PREFIX_EMBEDDING) or name.endswith(_ANGLES)


def kind_of(config: dict[str, Any], source: str) -> Kind:
    """What the config says. Raises MedusaError for heads that cannot run here."""
    arch = config.get("hydra_head_arch", Arch.MLP.value)
    if arch not in list(Arch):
        raise MedusaError(
            f"the heads in {source} are of the kind {arch!r} (hydra_head_arch): use {' or '.join(Arch)}"
        )
    if config.get("grounded_heads") is False:
        raise MedusaError(
            f"the heads in {source} do not see the drafted tokens (grounded_heads false), as Medusa's: use "
            "grounded ones"
        )
    if config.get("hidden_state_offset") not in (None, 0):
        raise MedusaError(
            f"the heads in {source} read the hidden state {config['hidden_state_offset']} layers before the "
            "last one (hidden_state_offset): use heads that read the last, 0"
        )
    numbers = [config.get(f"hydra_num_{what}") for what in ("heads", "layers")]
    if not all(type(number) is int and 1 <= number <= 64 for number in numbers):
        raise MedusaError(
            f"the config.json of the heads in {source} says hydra_num_heads {numbers[0]} and "
            f"hydra_num_layers {numbers[1]}: both must be whole numbers from 1 to 64, {_AGAIN}"
        )
    return Kind(Arch(arch), cast("int", numbers[0]), cast("int", numbers[1]))


def from_public(state: State, kind: Kind, base: Any, source: str) -> HydraHeads:
    """Heads out of the tensors of a file, in its dtype; ``base`` is the base's config for text.

    Raises MedusaError that names the first fault: a number of heads, a missing or unknown tensor, a shape.
    """
    _check_count(state, kind, source)
    names, width = kind.arch, base.hidden_size
    prefix = PrefixLayer(base) if kind.arch is Arch.PREFIX_MLP else None
    used = {name: tensor for name, tensor in state.items() if not is_unused(name)}
    first, bias = used.get(names.block(0, 0, "linear.weight")), used.get(f"{names.last(0)}.bias")
    if first is not None:
        require_width(source, next(iter(first.shape), 0), width)
    shapes = _shapes(kind, width, 0 if bias is None else bias.numel())
    if prefix is not None:
        shapes |= {PREFIX + name: tuple(tensor.shape) for name, tensor in prefix.state_dict().items()}
    again = "give --heads made for this base, or fetch them with their config.json again"
    require_tensors(f"the file in {source}", used, shapes, again)
    if prefix is not None:
        wanted = prefix.state_dict()
        prefix.load_state_dict({name: state[PREFIX + name] for name in wanted}, assign=True)
    heads = [_head(state, kind, head) for head in range(kind.heads)]
    for head in heads[1:]:
        if torch.equal(head.last.weight, heads[0].last.weight) and torch.equal(
            head.last.bias, heads[0].last.bias
        ):
            head.last = heads[0].last  # held once, as the base's in `train hydra --lm-head base`
    return HydraHeads(heads, prefix)


def to_public(heads: HydraHeads, embedding: torch.Tensor) -> State:
    """All tensors under the public names; ``embedding`` [V, d] is the base's, which the files copy."""
    names = Arch.MLP if heads.prefix is None else Arch.PREFIX_MLP
    state: State = {EMBEDDING: embedding}
    for number in range(heads.count):
        head = heads.head(number)
        for layer, block in enumerate([head.linear, *(cast("nn.Linear", one) for one in head.further)]):
            state |= _named(block, names.block(number, layer, "linear"))
        state |= _named(head.residual, names.block(number, 0, "res_connection"))
        state |= _named(head.last, names.last(number))
    if heads.prefix is not None:
        state |= {PREFIX + name: tensor for name, tensor in heads.prefix.state_dict().items()}
        state[PREFIX_EMBEDDING] = embedding
    return {name: tensor.detach() for name, tensor in state.items()}


def _named(layer: nn.Linear, name: str) -> State:
    return {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}


def _head(state: State, kind: Kind, head: int) -> HydraHead:
    names = kind.arch
    blocks = [_linear(state, names.block(head, layer, "linear")) for layer in range(kind.layers)]
    # The public code repeats one block: held, and trained, once where the numbers are the same.
    for layer in range(2, kind.layers):
        if torch.equal(blocks[layer].weight, blocks[1].weight) and torch.equal(
            blocks[layer].bias, blocks[1].bias
        ):
            blocks[layer] = blocks[1]
    residual = _linear(state, names.block(head, 0, "res_connection"))
    return HydraHead(blocks[0], residual, blocks[1:], _linear(state, names.last(head)))


def _linear(state: State, name: str) -> nn.Linear:
    weight = state[f"{name}.weight"]
    layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    layer.load_state_dict({"weight": weight, "bias": state[f"{name}.bias"]}, assign=True)
    return layer


def _shapes(kind: Kind, width: int, rows: int) -> dict[str, tuple[int, ...]]:
    """The heads' tensors and their shapes [out, in]; ``rows`` is V."""
    names = kind.arch
    shapes: dict[str, tuple[int, ...]] = {}
    for head in range(kind.heads):
        wide = (head + 2) * width
        layers = {names.block(head, layer, "linear"): width for layer in range(kind.layers)}
        layers |= {names.block(head, 0, part): wide for part in ("linear", "res_connection")}
        for name, columns in layers.items():
            shapes |= {f"{name}.weight": (width, columns), f"{name}.bias": (width,)}
        shapes |= {f"{names.last(head)}.weight": (rows, width), f"{names.last(head)}.bias": (rows,)}
    return shapes


def _check_count(state: State, kind: Kind, source: str) -> None:
    held = len({match[1] for name in state if (match := _BLOCK.fullmatch(str(name)))})
    if held == 0:
        raise MedusaError(
            f"{source} holds no Hydra heads, no tensor is called hydra_mlp.0…: name another folder"
        )
    if held != kind.heads:
        raise MedusaError(
            f"the file in {source} holds {held} heads, its config.json says hydra_num_heads "
            f"{kind.heads}: {_AGAIN}"
        )
