"""A multi-token-prediction layer as it is loaded for a target, and its drafter: EAGLE-3's with this layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.nn import functional as F

from medusa_core.checkpoints.files import require_finite
from medusa_core.drafters.eagle3.draft import Eagle3Draft, target_embedding
from medusa_core.drafters.eagle3.drafter import Eagle3Drafter
from medusa_core.drafters.eagle3.network import NativeNetwork
from medusa_core.drafters.eagle3.shape import DraftShape
from medusa_core.drafters.mtp import NAME
from medusa_core.drafters.mtp.files import SHARED, check_layer, read_layer, require_kind
from medusa_core.drafters.mtp.model import MtpLayer
from medusa_core.model.features import LAST_HIDDEN
from medusa_core.model.target import Target


class NativeMtpNetwork(NativeNetwork):
    """The layer by the forward in C, which begins with embedding and hidden state joined into one."""

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """As ``Network``: the target's last hidden state [T, d] as it is."""
        return features

    def begin(self, tokens: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        assert isinstance(self._draft, MtpLayer)
        return self.join(self._draft.normed(F.embedding(tokens, self._embedding), features))


@dataclass(frozen=True)
class MtpDraft(Eagle3Draft):
    """A layer on the device of the target's LM head and in its dtype."""

    native = NativeMtpNetwork

    @property
    def label(self) -> str:
        return "MTP layer"


class MtpDrafter(Eagle3Drafter):
    """Drafts from the target's last hidden state, and then from the layer's own output."""

    name, title, first = NAME, "MTP layer", "the model’s hidden state"


def load(folder: Path, target: Target) -> MtpDraft:
    """Read a layer for a target. Raises MedusaError when it is damaged or does not fit."""
    state, count = read_layer(folder)
    require_kind(state, folder)
    notes = [f"of {count} MTP layers the first drafts all levels"] if count > 1 else []
    head, table = target.held.lm_head().to(target.output_device, target.dtype), target_embedding(target)
    for (name, what), own in zip(SHARED.items(), (table, head), strict=True):
        if (copy := state.pop(name, None)) is not None and not torch.equal(copy.to(own), own):
            notes.append(f"{name} is not the model's own {what}, which is used")
    rope = dict(getattr(target.config, "rope_parameters", None) or {})
    shape = DraftShape.like(target.config, target.vocab_size)
    gate = state.get("mlp.gate_proj.weight")
    shape = replace(
        shape,
        intermediate=shape.intermediate if gate is None else len(gate),
        rope_scaling=rope if rope.get("rope_type", "default") != "default" else None,
    )
    with torch.device("meta"):
        model = MtpLayer(shape, head)
    check_layer(state, model, folder)
    require_finite(f"the MTP layer in {folder}", state, target.dtype)
    return MtpDraft.filled(model, state, target, table, LAST_HIDDEN.layers, tuple(notes))
