"""Gives a target the forward in C, or the lean one, where its model qualifies and the two agree.

On a GPU transformers' forward runs as it is, unless it is to be recorded as CUDA graphs (``capture_model``).

Tried out on the loaded model and machine, in some tenths of a second: that the lean forward gives the logits
of transformers' forward where that was loaded too, that packing the weights is faster, and for the lean one
in half precision that a node of a tree gets the bits of its token alone, as it always does in C.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from medusa_core.errors import MedusaError, is_out_of_memory, reason_of
from medusa_core.llama.forward import LlamaForward
from medusa_core.llama.library import Library, NoLibraryError
from medusa_core.llama.weights import NotLlamaError, originals, require_plain
from medusa_core.llama.weights import read_weights as read_for_c
from medusa_core.model.capture_model import capture_model
from medusa_core.model.cuda_graphs import recorded_on_cuda
from medusa_core.model.exact_attention import CHUNK, sums_in_order
from medusa_core.model.features import LAST_HIDDEN
from medusa_core.model.forward import Forward, Rows
from medusa_core.model.forward_choice import ForwardChoice
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.lean import LeanForward
from medusa_core.model.lean_model import LeanModel
from medusa_core.model.lean_weights import NotLeanError, read_weights, return_freed_memory
from medusa_core.model.products import Operators, invariant_rows
from medusa_core.model.quantization import own_packing
from medusa_core.model.target import Target
from medusa_core.model.threads import cpu_threads
from medusa_core.trees.origin import ROOT
from medusa_core.trees.token_tree import TokenTree

OwnForward = LeanForward | LlamaForward
_TREE_SIZES = (2, 7, 33)  # rows of the trees that are compared with their tokens alone
_PATHS = 3  # compared in each tree
_NOT_CAPTURED = "--capture replays its steps as CUDA graphs, which no GPU has run yet"


def choose_forward(
    target: Target,
    *,
    pack: bool | None = None,
    capture: bool = False,
    threads_for: Callable[[OwnForward], int | None] = lambda forward: None,
    library: Library | NoLibraryError | None = None,
    release: bool = False,
    int8: bool = False,
) -> ForwardChoice:
    """Let ``target`` run a forward of our own where it can, and return what was chosen.

    ``pack`` says whether to pack the weights; None means where it is faster. ``capture`` has steps on a GPU
    recorded. ``threads_for`` chooses how many threads run it; None means torch's own number. ``library`` has
    the forward in C, which takes those models that it knows; where there is none, the choice says why. With
    ``release`` nobody else uses the model, and the C frees each weight that it has packed. With ``int8``
    these get 8 bits each; raises MedusaError where the C does not run the model.
    """
    target.library = library if isinstance(library, Library) else None
    on_cuda = target.output_device.type == "cuda"
    if on_cuda:
        target.forward = ForwardChoice(why="" if capture else _NOT_CAPTURED)
        if capture:
            capture_model(target, recorded_on_cuda)
        return target.forward
    why = "" if pack else _why_not_in_c(target, library)
    try:
        if isinstance(library, Library) and not pack and not why:
            _use_c(target, library, threads_for, release, int8)
        else:
            _use_lean(target, pack, why, threads_for)
    except NotLeanError as reason:
        target.forward = ForwardChoice(why=str(reason))
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
        if is_out_of_memory(error):
            raise
        target.forward = ForwardChoice(why=f"the lean one fails: {reason_of(error)}")
    if int8 and not target.forward.native:
        raise MedusaError(f"8-bit weights need the forward in C ({target.forward.why}): leave out --quantize")
    return target.forward


def _why_not_in_c(target: Target, library: Library | NoLibraryError | None) -> str:
    """Why the C cannot take a model; empty where it can, or where nobody asks for it."""
    if isinstance(library, NoLibraryError):
        return f"not in C: {library}"
    try:
        if library is not None:
            require_plain(target.held.weights)
    except NotLlamaError as reason:  # the forward in torch takes more kinds of model
        return f"not in C: {reason}"
    return ""


def _use_c(
    target: Target,
    library: Library,
    threads_for: Callable[[OwnForward], int | None],
    release: bool,
    int8: bool,
) -> None:
    with torch.inference_mode():
        wanted = None if isinstance(target.held, LeanModel) else _reference(target)
    model = target.held.weights
    weights = read_for_c(model, target.layer_kinds, target.masks.window, int8=int8, release=release)
    if int8:
        target.held.packing = own_packing(target.config.hidden_size)
    if release:
        target.held.restore_by(partial(originals, weights, model))
        return_freed_memory()
    forward = LlamaForward(weights, target.masks, target.context, library)
    if wanted is not None:
        with torch.inference_mode():
            _require_agreement(target, forward, wanted, rounded=int8)
    target.lean, target.threads = forward, threads_for(forward)
    target.forward = ForwardChoice(lean=True, exact=True, threads=target.threads, native=True)


def _use_lean(
    target: Target, pack: bool | None, why: str, threads_for: Callable[[OwnForward], int | None]
) -> None:
    weights = read_weights(target.held.weights, pack=pack, kinds=target.layer_kinds)
    lean = LeanForward(weights, target.masks, target.context)
    threads, rounding = threads_for(lean), ""
    # With other threads products are parted otherwise, so these are the ones to try.
    with torch.inference_mode(), cpu_threads(threads, target.usual_threads):
        if not isinstance(target.held, LeanModel):
            _require_agreement(target, lean, _reference(target))
        if target.dtype != torch.float32:
            rounding = why_not_exact(lean, target.context)
    target.lean, target.threads = lean, threads
    exact = target.dtype != torch.float32 and not rounding
    reasons = "; ".join(filter(None, (rounding, why)))
    target.forward = ForwardChoice(True, lean.weights.packed, exact, reasons, threads)


def _tried(target: Target) -> tuple[list[int], TokenTree, list[int]]:
    """A prompt, a small tree behind it, and the tokens of its longest path."""
    vocabulary = target.vocab_size
    start, branch = [token % vocabulary for token in (3, 5, 7)], [token % vocabulary for token in (4, 8, 9)]
    return start, _tree([-1, 0, 0, 2], [branch[0], 6 % vocabulary, *branch[1:]]), branch


def _reference(target: Target) -> torch.Tensor:
    """What transformers' forward says at the end of the path."""
    start, _, branch = _tried(target)
    ids = torch.tensor([start + branch], device=target.device)
    logits: torch.Tensor = target.model(input_ids=ids, use_cache=False).logits
    return logits[0, -1].float()


def _require_agreement(
    target: Target, forward: Forward, wanted: torch.Tensor, *, rounded: bool = False
) -> None:
    """Raise NotLeanError when a node of a small tree gets other logits than from transformers' forward."""
    start, tree, _ = _tried(target)
    cache = forward.new_cache(8)
    _read(forward, cache, start, target.device)
    logits, _ = forward(Rows.of_tree(tree, target.device), cache)
    off = float((logits[-1].float() - wanted).norm() / (wanted - wanted.mean()).norm())
    exact = target.dtype == torch.float32 and not rounded
    allowed = 1e-2 if exact else 0.1  # rounding, against an error of the mask
    if not off <= allowed:
        raise NotLeanError(f"the lean forward's logits are off by {off:.0%}")


def why_not_exact(lean: LeanForward, context: int) -> str:
    """Let each product take so many rows at once as keep a row's bits; what still changes them, or ""."""
    weights = lean.weights
    fits: dict[torch.Size, int] = {}
    for product in weights.products():
        if product.shape not in fits:
            operators = Operators.find() if weights.packed else None
            fits[product.shape] = invariant_rows(product.shape, weights.embedding.dtype, operators)
        product.rows = fits[product.shape] or None  # which nothing would gain from cutting
    heads = weights.query_heads // weights.key_heads
    if not all(fits.values()):
        return "products round by the number of rows on this machine"
    if not sums_in_order(min(weights.key_heads, 4), heads, weights.head_size):
        return "sums of attention are not made in order on this machine"
    if not _layer_is_exact(lean, context):
        return "a layer rounds by the number of rows on this machine"
    return ""


def _layer_is_exact(lean: LeanForward, context: int) -> bool:
    """Whether nodes of trees get the bits of their tokens alone from the first layer, last norm and LM head.

    All layers have the same shapes. The trees lie across the border of a chunk of ``exact_attention``.
    """
    first = lean.first_layers(1, context)
    weights = first.weights
    generator = torch.Generator().manual_seed(0)
    vocabulary = len(weights.embedding)
    length = max(1, min(CHUNK - 2, context - 8))
    cache = first.new_cache(length + max(_TREE_SIZES))
    device = weights.embedding.device
    _read(first, cache, torch.randint(vocabulary, (length,), generator=generator).tolist(), device)
    for size in _TREE_SIZES:
        parents = [-1, *((node - 1) // 2 for node in range(1, size))]
        tokens = torch.randint(vocabulary, (size,), generator=generator).tolist()
        tree = _tree(parents, tokens)
        logits, states = first(Rows.of_tree(tree, device, LAST_HIDDEN), cache)
        for leaf in range(size - 1, max(size - 1 - _PATHS, 0), -1):
            for node in _path_to(parents, leaf):
                alone_logits, alone_state = _read(first, cache, [tokens[node]], device)
                if not (
                    torch.equal(alone_logits[0], logits[node])
                    and torch.equal(alone_state[0], states[0][node])
                ):
                    return False
            cache.truncate(length)
    return True


def _path_to(parents: list[int], node: int) -> list[int]:
    return ([] if parents[node] < 0 else _path_to(parents, parents[node])) + [node]


def _tree(parents: list[int], tokens: list[int]) -> TokenTree:
    return TokenTree.from_lists(tokens, parents, [ROOT] * len(parents))


def _read(
    lean: Forward, cache: TreeCache, tokens: list[int], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Read and commit tokens: logits of the last row, hidden states of all."""
    rows = Rows.of_text(tokens, device, 1, LAST_HIDDEN)
    logits, states = lean(rows, cache)
    cache.commit(range(len(tokens)))
    return logits, states[0]
