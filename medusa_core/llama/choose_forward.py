"""Gives a target the forward in C where its model qualifies and the two agree.

Elsewhere transformers' forward runs as it is, on a GPU as CUDA graphs where that is asked for. Where that
forward was loaded too, a trial of some tenths of a second checks that the C gives the same logits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from medusa_core.errors import MedusaError, is_out_of_memory, reason_of
from medusa_core.llama.forward import LlamaForward
from medusa_core.llama.library import Library, NoLibraryError
from medusa_core.llama.weights import NotLlamaError, originals, read_weights, require_plain
from medusa_core.model.bare_llama import BareModel
from medusa_core.model.captured_forward import capture_on_cuda
from medusa_core.model.compiled_parts import can_compile
from medusa_core.model.forward import Forward, ForwardChoice, Part, Rows
from medusa_core.model.loaded_model import CANNOT_RUN, branch_alone, relative_error, tolerance, tried_tree
from medusa_core.model.quantization import own_packing
from medusa_core.model.target import Target
from medusa_core.model.try_capture import capture_model

_NOT_CAPTURED = "not captured: --no-capture"


def choose_forward(
    target: Target,
    *,
    capture: bool = False,
    threads_for: Callable[[LlamaForward], int | None] = lambda forward: None,
    library: Library | NoLibraryError | None = None,
    release: bool = False,
    int8: bool = False,
) -> ForwardChoice:
    """Let ``target`` run the forward in C where it can, and return what was chosen.

    With ``capture`` steps on a GPU are captured. ``threads_for`` says how many threads run the C; None means
    torch's own number. ``library`` has the C; where there is none, the choice says why. With ``release``
    nobody else uses the model, and each weight is freed once it is packed. With ``int8`` weights get 8 bits
    each; raises MedusaError where the C does not run the model.
    """
    target.library = library if isinstance(library, Library) else None
    if target.output_device.type == "cuda":
        target.choice = ForwardChoice(why="" if capture else _NOT_CAPTURED)
        if capture:
            capture_model(target, capture_on_cuda, compiles=can_compile())
        return target.choice
    try:
        if isinstance(library, Library):
            _use_c(target, library, threads_for, release, int8)
        elif library is not None:
            target.choice = ForwardChoice(why=f"not in C: {library}")
    except NotLlamaError as reason:
        target.choice = ForwardChoice(why=f"not in C: {reason}")
    except CANNOT_RUN as error:
        if is_out_of_memory(error):
            raise
        target.choice = ForwardChoice(why=f"the one in C fails: {reason_of(error)}")
    if int8 and not target.choice.native:
        raise MedusaError(f"8-bit weights need the forward in C ({target.choice.why}): leave out --quantize")
    return target.choice


def _use_c(
    target: Target,
    library: Library,
    threads_for: Callable[[LlamaForward], int | None],
    release: bool,
    int8: bool,
) -> None:
    model = target.held.weights
    require_plain(model)
    with torch.inference_mode():
        wanted = None if isinstance(target.held, BareModel) else branch_alone(target)
    weights = read_weights(model, target.layer_kinds, target.masks.window, int8=int8, release=release)
    if int8:
        target.held.packing = own_packing(target.config.hidden_size)
    if release:
        target.held.restore_by(partial(originals, weights, model))
    forward = LlamaForward(weights, target.masks, target.context, library)
    if wanted is not None:
        with torch.inference_mode():
            _require_agreement(target, forward, wanted, rounded=int8)
    target.forward, target.threads = forward, threads_for(forward)
    target.choice = ForwardChoice(native=True, threads=target.threads)


def _require_agreement(target: Target, forward: Forward, wanted: torch.Tensor, *, rounded: bool) -> None:
    """Raise NotLlamaError when a node of a small tree gets other logits than from transformers' forward."""
    start, tree = tried_tree(target)
    cache = forward.new_cache(8)
    forward([Part(Rows.of_text(start, target.device, 1), cache)])
    cache.commit(range(len(start)))
    ((logits, _),) = forward([Part(Rows.of_tree(tree, target.device), cache)])
    off = relative_error(logits[-1], wanted)
    if not off <= tolerance(target.dtype, rounded):
        raise NotLlamaError(f"its logits are off by {off:.0%}")
