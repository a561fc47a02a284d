"""Tries whether a model can be captured, and its parts compiled: small trees must come out alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from medusa_core.errors import is_out_of_memory, reason_of
from medusa_core.model.captured_forward import Capture, CapturedForward, HostReadError
from medusa_core.model.compiled_parts import CompiledParts
from medusa_core.model.features import LAST_HIDDEN
from medusa_core.model.forward import Forward, Outputs, Part, Rows
from medusa_core.model.loaded_model import CANNOT_RUN, relative_error, tolerance
from medusa_core.model.target import Target
from medusa_core.trees.origin import ROOT
from medusa_core.trees.token_tree import TokenTree

_SLOTS = 32
_START = (3, 5, 7)
_TREES = (  # consecutive ones, with the path that is accepted of each; a single row is compiled by itself
    ((-1, 0, 0, 2), (0, 2, 3)),
    ((-1, 0, 0, 2), (0,)),
    ((-1, 0, 0, 2), (0, 1)),
    ((-1,), (0,)),
)


class NotCapturedError(RuntimeError):
    """Why a model's forward runs as it is."""


def capture_model(target: Target, capture: Capture, *, compiles: bool = False) -> None:
    """Give ``target`` its forward as captured graphs, or say in ``target.choice`` why it has none.

    With ``compiles`` torch compiles parts of the model where it can.
    """
    reasons = [target.choice.why]
    parts = CompiledParts(target.held.weights) if compiles else None
    try:
        with torch.inference_mode():
            _require_capturable(target)
            wanted = _answers(target, target.forward)
            captured = _compiled(target, capture, parts, wanted, reasons) if parts else None
            compiled = captured is not None
            captured = captured or _tried(target, CapturedForward(target.held, target.masks, capture), wanted)
    except CANNOT_RUN as error:
        if is_out_of_memory(error):
            raise
        reasons = [target.choice.why, f"not captured: {reason_of(error)}"]
    else:
        target.forward, target.capture = captured, capture
        target.choice = replace(target.choice, captured=True, compiled=compiled)
    target.choice = replace(target.choice, why="; ".join(filter(None, reasons)))


def _require_capturable(target: Target) -> None:
    if getattr(target.held.weights, "is_quantized", False):
        raise NotCapturedError("its weights are quantised, and no capture of such products has been tried")
    if len({parameter.device for parameter in target.held.weights.parameters()}) > 1:
        raise NotCapturedError("it is spread over several devices")


def _compiled(
    target: Target, capture: Capture, parts: CompiledParts, wanted: Sequence[Outputs], reasons: list[str]
) -> CapturedForward | None:
    """The forward with its parts compiled; None where that fails in any way, and ``reasons`` gets why."""
    try:
        return _tried(target, CapturedForward(target.held, target.masks, capture, parts), wanted)
    except HostReadError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        reasons.append(f"not compiled: {reason_of(error)}")
        return None


def _tried(target: Target, captured: CapturedForward, wanted: Sequence[Outputs]) -> CapturedForward:
    """``captured``, once tried. Raises NotCapturedError, or whatever compiling or capturing it raises."""
    for mine, theirs in zip(_answers(target, captured), wanted, strict=True):
        _require_same(target, mine[0], theirs[0], "logits")
        _require_same(target, mine[1][0], theirs[1][0], "hidden states")
    return captured


def _answers(target: Target, forward: Forward) -> list[Outputs]:
    """The outputs of a forward for a few small trees, each behind the rows of the one before."""
    cache, vocabulary = forward.new_cache(_SLOTS), target.vocab_size
    text = Rows.of_text([token % vocabulary for token in _START], target.device, 1)
    forward([Part(text, cache)])
    cache.commit(range(len(_START)))
    answers = []
    # Later trees of a size run what the first one captured, behind more rows.
    for number, (parents, path) in enumerate(_TREES):
        tokens = [(4 + 3 * number + 2 * node) % vocabulary for node in range(len(parents))]
        tree = TokenTree.from_lists(tokens, parents, [ROOT] * len(tokens), device=target.device)
        logits, states = forward([Part(Rows.of_tree(tree, target.device, LAST_HIDDEN), cache)])[0]
        answers.append((logits.clone(), [state.clone() for state in states]))
        cache.commit(path)
    return answers


def _require_same(target: Target, found: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    off = relative_error(found, wanted)
    if not off <= tolerance(target.dtype):  # over a bucket of slots kernels sum in other orders
        raise NotCapturedError(f"a captured step's {what} are off by {off:.0%}")
