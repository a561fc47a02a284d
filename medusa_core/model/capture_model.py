"""Lets transformers' forward run as recordings where a try on the loaded model says that it can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from medusa_core.errors import is_out_of_memory, reason_of
from medusa_core.model.captured_forward import CapturedForward, Record, Result
from medusa_core.model.features import LAST_HIDDEN
from medusa_core.model.forward import Forward, Part, Rows
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.target import Target
from medusa_core.trees.origin import ROOT
from medusa_core.trees.token_tree import TokenTree

_SLOTS = 32
_START = (3, 5, 7)
_PARENTS = (-1, 0, 0, 2)
_PATHS = ([0, 2, 3], [0], [0, 1])  # accepted paths of consecutive trees


_READS = {
    "_local_scalar_dense": "reads a number on the host",
    "nonzero": "makes a tensor whose size depends on its values",
    "is_nonzero": "asks on the host whether a number is 0",
    "equal": "compares tensors on the host",
    "masked_select": "makes a tensor whose size depends on its values",
    "_unique2": "makes a tensor whose size depends on its values",
}


class HostReadError(RuntimeError):
    """Why work cannot be recorded."""


class NoHostReads(TorchDispatchMode):
    """Raises HostReadError where a value leaves the device, or a tensor moves between devices."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[-1]
        if name in _READS:
            raise HostReadError(f"it {_READS[name]}")
        device = (kwargs or {}).get("device")
        if name == "_to_copy" and device is not None and device != args[0].device:
            raise HostReadError("it moves a tensor between devices")
        return func(*args, **(kwargs or {}))


class NotCapturedError(Exception):
    """Why a model's forward runs as it is."""


def capture_model(target: Target, record: Record) -> None:
    """Give ``target`` its forward as recordings, or say in ``target.choice`` why it has none."""
    try:
        with torch.inference_mode():
            target.forward = _tried(target, _checked(record))
    except (NotCapturedError, RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
        if is_out_of_memory(error):
            raise
        reasons = [target.choice.why, f"not captured: {reason_of(error)}"]
        target.choice = replace(target.choice, why="; ".join(filter(None, reasons)))
    else:
        target.choice = replace(target.choice, captured=True)


def _checked(record: Record) -> Record:
    """A failed capture may leave the device with an error, so the work is looked at before."""

    def checked(work: Callable[[], Result]) -> Callable[[], Result]:
        with NoHostReads():
            work()
        return record(work)

    return checked


def _tried(target: Target, record: Record) -> CapturedForward:
    """Raises NotCapturedError, or whatever recording the model raises."""
    if len({parameter.device for parameter in target.held.weights.parameters()}) > 1:
        raise NotCapturedError("it is spread over several devices")
    plain, vocabulary = target.forward, target.vocab_size
    captured = CapturedForward(target.held, target.masks, record)
    both: list[tuple[Forward, TreeCache]] = [(one, one.new_cache(_SLOTS)) for one in (plain, captured)]
    text = Rows.of_text([token % vocabulary for token in _START], target.device, 1)
    for forward, cache in both:
        forward([Part(text, cache)])
        cache.commit(range(len(_START)))
    # The second tree and the third run what the first one recorded, behind more rows.
    for number, path in enumerate(_PATHS):
        tokens = [(4 + 3 * number + 2 * node) % vocabulary for node in range(len(_PARENTS))]
        tree = TokenTree.from_lists(tokens, _PARENTS, [ROOT] * len(tokens), device=target.device)
        rows = Rows.of_tree(tree, target.device, LAST_HIDDEN)
        wanted, found = (forward([Part(rows, cache)])[0] for forward, cache in both)
        _require_same(target, found[0], wanted[0], "logits")
        _require_same(target, found[1][0], wanted[1][0], "hidden states")
        for _, cache in both:
            cache.commit(path)
    return captured


def _require_same(target: Target, found: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    found, wanted = found.float(), wanted.float()
    off = float((found - wanted).norm() / (wanted - wanted.mean()).norm())
    # Rounding: over a bucket of slots kernels sum in other orders.
    if not off <= (1e-2 if target.dtype == torch.float32 else 0.1):
        raise NotCapturedError(f"a recorded step's {what} are off by {off:.0%}")
