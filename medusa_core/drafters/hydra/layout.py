"""Map the public names of Hydra's tensors to modules and back; strict, as gaps would be filled at random.

i = head, j = layer. arch ``mlp``: ``hydra_mlp.{i}.{j}.linear`` and ``.res_connection`` (of the first layer
alone), ``hydra_lm_head.{i}``. arch ``prefix-mlp`` counts a dropout before each of them too: layer j is
``hydra_mlp.{i}.{2j + 1}``, the last ``hydra_lm_head.{i}.1``; its decoder layer is
``prefix_embeding_layer.layers.0`` (so spelt). ``input_embed_fn.weight`` is a copy of the base's embedding.

K heads · L layers · V vocabulary · d hidden size
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import nn

from medusa_core.checkpoints.files import AGAIN, State, require_tensors, whole_number
from medusa_core.checkpoints.heads import require_width
from medusa_core.drafters.hydra.heads import HydraHead, HydraHeads
from medusa_core.drafters.hydra.prefix import PrefixLayer
from medusa_core.errors import MedusaError

EMBEDDING = "input_embed_fn.weight"
PREFIX = "prefix_embeding_layer."
PREFIX_EMBEDDING = f"{PREFIX}embed_tokens.weight"  # never read: the layer's inputs are hidden states
_ANGLES = "rotary_emb.inv_freq"  # the angles follow from the config
_MOST = 64  # heads, and layers of a head


class Arch(StrEnum):
    """Kinds of heads by ``hydra_head_arch``, and how their tensors are called."""

    MLP = "mlp"
    PREFIX_MLP = "prefix-mlp"

    def public(self, name: str) -> str:
        """The public name of a tensor by its name in ``HydraHeads``."""
        if name.startswith("prefix."):
            return PREFIX + name.removeprefix("prefix.")
        _, head, part, rest = name.split(".", 3)
        layer, _, kind = rest.rpartition(".")
        if part == "last":
            return f"hydra_lm_head.{head}{'' if self is Arch.MLP else '.1'}.{kind}"
        number = int(layer) + 1 if part == "further" else 0
        place = number if self is Arch.MLP else 2 * number + 1
        return f"hydra_mlp.{head}.{place}.{'res_connection' if part == 'residual' else 'linear'}.{kind}"


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
    try:
        heads, layers = (
            whole_number(config, f"hydra_num_{what}", most=_MOST) for what in ("heads", "layers")
        )
    except MedusaError as error:
        raise MedusaError(f"the config.json of the heads in {source}: {error}; {AGAIN}") from error
    return Kind(Arch(arch), heads, layers)


def from_public(state: State, kind: Kind, base: Any, source: str) -> HydraHeads:
    """Heads out of the tensors of a file, in its dtype; ``base`` is the base's config for text.

    Raises MedusaError that names the first fault: a missing or unknown tensor, or a shape.
    """
    public = kind.arch.public
    first, bias = state.get(public("heads.0.linear.weight")), state.get(public("heads.0.last.bias"))
    if first is not None:
        require_width(source, next(iter(first.shape), 0), base.hidden_size)
    heads = _empty(kind, base, 0 if bias is None else bias.numel())
    names = {name: public(name) for name in heads.state_dict()}
    used = {name: tensor for name, tensor in state.items() if not is_unused(name)}
    shapes = {names[name]: tensor.shape for name, tensor in heads.state_dict().items()}
    counts = f"its config.json says hydra_num_heads {kind.heads} and hydra_num_layers {kind.layers}"
    fix = f"{counts}; fetch both again, or give --heads made for this base"
    require_tensors(f"the file in {source}", used, shapes, fix)
    heads.load_state_dict({name: state[names[name]] for name in names}, assign=True)
    for head in map(heads.head, range(kind.heads)):
        # The public code repeats one block: held, and trained, once where the numbers are the same.
        for layer, block in enumerate(head.further):
            if _are_equal(block, head.further[0]):
                head.further[layer] = head.further[0]
        if _are_equal(head.last, heads.head(0).last):
            head.last = heads.head(0).last  # held once, as the base's in `train hydra --lm-head base`
    return heads


def to_public(heads: HydraHeads, embedding: torch.Tensor) -> State:
    """All tensors under the public names; ``embedding`` [V, d] is the base's, which the files copy."""
    arch = Arch.MLP if heads.prefix is None else Arch.PREFIX_MLP
    state = {EMBEDDING: embedding} | {arch.public(name): t for name, t in heads.state_dict().items()}
    if heads.prefix is not None:
        state[PREFIX_EMBEDDING] = embedding
    return {name: tensor.detach() for name, tensor in state.items()}


def _empty(kind: Kind, base: Any, rows: int) -> HydraHeads:
    """Heads on the meta device, whose logits have so many ``rows``."""
    width = base.hidden_size
    with torch.device("meta"):
        heads = [
            HydraHead(inputs, width, rows, kind.layers)
            for inputs in range(2 * width, (kind.heads + 2) * width, width)
        ]
    return HydraHeads(heads, PrefixLayer(base) if kind.arch is Arch.PREFIX_MLP else None)


def _are_equal(first: nn.Module, second: nn.Module) -> bool:
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)
