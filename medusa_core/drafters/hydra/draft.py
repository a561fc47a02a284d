"""Hydra heads as they are loaded for a target, with the tree and the accuracies that lie beside them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import nn

from medusa_core.checkpoints.files import State, read_config, require_finite
from medusa_core.checkpoints.heads import OTHER_BASE
from medusa_core.drafters._head_trees import HeadsDraft
from medusa_core.drafters._own_settings import tree_and_accuracies
from medusa_core.drafters.hydra.files import read_state
from medusa_core.drafters.hydra.heads import HydraHeads
from medusa_core.drafters.hydra.layout import EMBEDDING, from_public, is_unused, kind_of
from medusa_core.errors import MedusaError
from medusa_core.llama.library import Library
from medusa_core.llama.model import product
from medusa_core.llama.weights import COPY_LIMIT, DTYPES, linear
from medusa_core.model.target import Target

_SAME = 0.05  # by how much a copy of the embedding may be off, for its rounding


@dataclass(frozen=True)
class HydraDraft(HeadsDraft):
    """Hydra's heads, and the layer in front of them where there is one."""

    kind = "Hydra"
    heads: HydraHeads
    library: Library | None = None  # computes the heads in C; None leaves them to torch

    @cached_property
    def fast(self) -> HydraHeads:
        """The heads as drafters run them, laid out for C at the first run."""
        return in_c(self.heads, self.library)

    @torch.inference_mode()
    def guesses(self, target: Target, tokens: Sequence[int], ranks: int, start: int = 0) -> torch.Tensor:
        """Best guesses of all heads, after the text's own tokens, from ``start`` on: [K, T − start, R]."""
        heads, ids = self.heads, torch.tensor(list(tokens), device=target.device)
        hidden = target.read(tokens)[1].to(next(heads.parameters()))
        states = hidden if heads.prefix is None else heads.prefix(hidden[None])[0]
        embedded = target.held.weights.get_input_embeddings()(ids).to(hidden)
        found = torch.full((heads.count, len(tokens) - start, ranks), -1, device=hidden.device)
        for head in range(heads.count):
            inputs = heads.inputs(head, states, embedded)[start:]
            best = heads(head, inputs).topk(ranks, dim=-1).indices
            found[head, : len(best)] = best
        return found

    def is_untrained(self, target: Target) -> bool:
        """Whether the heads only predict what the base predicts, as fresh ones do, whatever their path is."""
        heads = [self.heads.head(number) for number in range(self.heads.count)]
        width = self.heads.width
        return not any(bool(one.linear.weight.any() | one.residual.weight[:, width:].any()) for one in heads)


def load(folder: Path, target: Target) -> HydraDraft:
    """Read heads, tree and accuracies. Raises MedusaError when they do not fit the target."""
    kind = kind_of(read_config(folder), str(folder))
    state = read_state(folder)
    notes = _other_embedding(state, target)
    heads = from_public(state, kind, target.config, str(folder)).to(target.output_device, target.dtype)
    if heads.vocabulary != target.vocab_size:
        raise MedusaError(
            f"the heads in {folder} know {heads.vocabulary} tokens, the base model {target.vocab_size}: "
            f"{OTHER_BASE}"
        )
    used = {name: tensor for name, tensor in state.items() if not is_unused(name)}
    require_finite(f"the heads in {folder}", used, target.dtype)
    return HydraDraft(
        heads.requires_grad_(False).eval(),
        *tree_and_accuracies(folder, heads.count, target.output_device),
        target.library,
        notes=notes,
    )


def _other_embedding(state: State, target: Target) -> tuple[str, ...]:
    """A note where the file's copy of the embedding is not the base's, which is the one that is used."""
    copy = state.get(EMBEDDING)
    own = target.held.embedding() if copy is not None else None
    if copy is None or own is None or own.is_meta or not own.is_floating_point():
        return ()
    if copy.shape == own.shape:
        # Some rows are enough, since another base's differ everywhere.
        rows = torch.arange(0, len(own), max(1, len(own) // 64))
        ours, theirs = own[rows.to(own.device)].cpu().float(), copy[rows].float()
        if (ours - theirs).norm() <= _SAME * ours.norm():
            return ()
    return (
        "the file's copy of the embedding is not the base's, so the heads may belong to another base; the "
        "base's own is used",
    )


class NativeLinear(nn.Linear):
    """A linear layer of the same weights, which computes in C by a copy of them in panels.

    torch lays weights out anew for each product of a few rows.
    """

    def __init__(self, given: nn.Linear, library: Library) -> None:
        super().__init__(given.in_features, given.out_features, bias=given.bias is not None, device="meta")
        self.weight, self.bias = given.weight, given.bias
        self._panels, self._library = linear([given]), library

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., inputs] → [..., outputs]."""
        return product(self._panels, x.reshape(-1, x.shape[-1]), self._library).view(*x.shape[:-1], -1)


def in_c(heads: HydraHeads, library: Library | None) -> HydraHeads:
    """The heads in C, on the same weights; as they are where C cannot compute them or they are large."""
    tensors = [*heads.parameters(), *heads.buffers()]
    if library is None or sum(tensor.nbytes for tensor in tensors) > COPY_LIMIT:
        return heads
    if any(tensor.dtype not in DTYPES or tensor.device.type != "cpu" for tensor in tensors):
        return heads
    copied = deepcopy(heads, {id(tensor): tensor for tensor in tensors})
    made: dict[nn.Module, NativeLinear] = {}  # a layer may stand in several places
    for name, layer in list(copied.named_modules(remove_duplicate=False)):
        if type(layer) is nn.Linear:
            copied.set_submodule(name, made.setdefault(layer, NativeLinear(layer, library)))
    return copied
