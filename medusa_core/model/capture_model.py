"""Lets transformers' forward run as recordings where a try on the loaded model says that it can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from medusa_core.errors import is_out_of_memory, reason_of
from medusa_core.model.features import LAST_HIDDEN
from medusa_core.model.forward import Rows
from medusa_core.model.host_reads import NoHostReads
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.static_forward import Record, Result
from medusa_core.model.static_model import StaticModel, shapes_of
from medusa_core.model.target import Target
from medusa_core.trees.origin import ROOT
from medusa_core.trees.token_tree import TokenTree

_SLOTS = 32
_START = (3, 5, 7)
_PARENTS = (-1, 0, 0, 2)
_PATHS = ([0, 2, 3], [0], [0, 1])  # accepted paths of consecutive trees


class NotCapturedError(Exception):
    """Why a model's forward runs as it is."""


def capture_model(target: Target, record: Record) -> None:
    """Give ``target`` its forward as recordings, or say in ``target.forward`` why it has none."""
    try:
        with torch.inference_mode():
            target.captured = _tried(target, _checked(record))
    except (NotCapturedError, RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
        if is_out_of_memory(error):
            raise
        reasons = [target.forward.why, f"not captured: {reason_of(error)}"]
        target.forward = replace(target.forward, why="; ".join(filter(None, reasons)))
    else:
        target.forward = replace(target.forward, captured=True)


def _checked(record: Record) -> Record:
    """A failed capture may leave the device with an error, so the work is looked at before."""

    def checked(work: Callable[[], Result]) -> Callable[[], Result]:
        with NoHostReads():
            work()
        return record(work)

    return checked


def _tried(target: Target, record: Record) -> StaticModel:
    """Raises NotCapturedError, or whatever recording the model raises."""
    if len({parameter.device for parameter in target.held.weights.parameters()}) > 1:
        raise NotCapturedError("it is spread over several devices")
    plain, vocabulary = TreeCache(target.config.num_hidden_layers, _SLOTS), target.vocab_size
    text = Rows.of_text([token % vocabulary for token in _START], target.device, 1)
    target.by_transformers(text, plain)
    plain.commit(range(len(_START)))
    forward = StaticModel(target.held, shapes_of(plain), target.masks, record)
    cache = forward.new_cache(_SLOTS)
    forward(text, cache)
    cache.commit(range(len(_START)))
    # The second tree and the third run what the first one recorded, behind more rows.
    for number, path in enumerate(_PATHS):
        tokens = [(4 + 3 * number + 2 * node) % vocabulary for node in range(len(_PARENTS))]
        tree = TokenTree.from_lists(tokens, _PARENTS, [ROOT] * len(tokens), device=target.device)
        rows = Rows.of_tree(tree, target.device, LAST_HIDDEN)
        wanted, found = target.by_transformers(rows, plain), forward(rows, cache)
        _require_same(target, found[0], wanted[0], "logits")
        _require_same(target, found[1][0], wanted[1], "hidden states")
        plain.commit(path)
        cache.commit(path)
    return forward


def _require_same(target: Target, found: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    found, wanted = found.float(), wanted.float()
    off = float((found - wanted).norm() / (wanted - wanted.mean()).norm())
    # Rounding: over a bucket of slots kernels sum in other orders.
    if not off <= (1e-2 if target.dtype == torch.float32 else 0.1):
        raise NotCapturedError(f"a recorded step's {what} are off by {off:.0%}")
