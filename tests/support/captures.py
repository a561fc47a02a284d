"""Captures of a forward without a GPU, and targets and engines whose forward is captured so."""

from __future__ import annotations

from dataclasses import replace

import tiny
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from medusa_core.model.captured_forward import NoHostReads
from medusa_core.model.target import Target
from medusa_core.model.try_capture import capture_model


class Operations(NoHostReads):
    """Notes each operation with the tensors that went in and came out."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = super().__torch_dispatch__(func, types, args, kwargs)
        self.operations.append((func, args, kwargs or {}, out))
        return out


def as_list_of_operations(work):
    """A capture as on a GPU: the operations are noted once, and that list alone is run from then on."""
    with Operations() as noted:
        outputs = work()

    def replay():
        now = {}  # tensors of this replay, by those of the capture; buffers stand for themselves

        def of_now(tensor):
            return now.get(id(tensor), tensor)

        for func, args, kwargs, out in noted.operations:
            given = tree_map_only(torch.Tensor, of_now, (args, kwargs))
            found = func(*given[0], **given[1])
            now.update((id(a), b) for a, b in zip(tree_leaves(out), tree_leaves(found), strict=True))
        return tree_map_only(torch.Tensor, of_now, outputs)

    return replay


def not_captured(work):
    """Where nothing can be captured the work itself is called each time."""
    return work


def captured_target(model, capture=not_captured):
    """The model's target with a forward that is captured so."""
    target = Target(model)
    capture_model(target, capture)
    assert target.choice.captured
    return target


def engine_on(model, capture=not_captured):
    """An engine on such a target, with heads that are often right."""
    engine = tiny.build_engine(model, tiny.fitted_heads(model))
    return replace(engine, target=captured_target(model, capture))
