"""A folder of an EAGLE-3 draft model: config.json with safetensors or a pickle, in the public layout.

V vocabulary · V' draft vocabulary
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from medusa_core.checkpoints.files import (
    AGAIN,
    State,
    headers,
    read_config,
    read_pickled,
    read_tensors,
    require_tensors,
)
from medusa_core.checkpoints.heads import write_config, write_file
from medusa_core.checkpoints.names import BASE_KEY, CONFIG_NAME, PICKLED_NAME, WEIGHTS_NAME
from medusa_core.drafters import DraftSize
from medusa_core.drafters.eagle3.model import DraftModel
from medusa_core.drafters.eagle3.shape import EMBEDDING, DraftShape, is_speculator
from medusa_core.errors import MedusaError, counted, reason_of

if TYPE_CHECKING:
    from medusa_core.loading.model_size import ModelSize

_WHAT = "EAGLE-3 weights"
_FIX = f"fetch them with {CONFIG_NAME} again (names as in the public code, vLLM and speculators are read)"
_MAPS = ("d2t", "t2d")
_PUBLIC, _NUMBERED = "midlayer.", "layers.0."  # the layer's names in the public code, and in vLLM's
_ROTARY = "rotary_emb.inv_freq"  # older versions of transformers save it and compute it anew


def owns(folder: Path) -> bool:
    """Whether the config has a draft vocabulary, as only EAGLE-3's does, or is of a related layout.

    Raises MedusaError for a damaged config.
    """
    return is_speculator(read_config(folder))


def size(folder: Path, base: ModelSize) -> DraftSize:
    """The memory it takes beside ``base``, by the files' headers or else the config. Raises MedusaError."""
    shape = read_shape(folder)
    own = headers(folder, WEIGHTS_NAME, lambda name: name not in (*_MAPS, EMBEDDING))
    weights = sum(header.count for header in own) or sum(size.numel() for size in _sizes(shape).values())
    return DraftSize(weights, shape.cache_row)


def read_shape(folder: Path) -> DraftShape:
    """The sizes that the folder's config says. Raises MedusaError when one is missing or impossible."""
    try:
        return DraftShape.of(read_config(folder))
    except MedusaError as error:
        raise MedusaError(f"cannot read the {_WHAT} in {folder}: {CONFIG_NAME}: {error}") from error


def read_draft(folder: Path, shape: DraftShape) -> State:
    """All tensors of a draft model, those of its maps among them; the target's embedding where it is there.

    Raises MedusaError for a file that is damaged or has other tensors than the config promises.
    """
    state = read_tensors(folder, WEIGHTS_NAME, lambda _: True, _WHAT)
    if not state:
        if not (folder / PICKLED_NAME).is_file():
            raise MedusaError(f"{folder} has no {WEIGHTS_NAME} and no {PICKLED_NAME}: fetch it again")
        state = read_pickled(folder / PICKLED_NAME, _WHAT)
    state = {
        _PUBLIC + name.removeprefix(_NUMBERED) if name.startswith(_NUMBERED) else name: tensor
        for name, tensor in state.items()
        if not name.endswith(_ROTARY)
    }
    own = {name: tensor for name, tensor in state.items() if name not in (*_MAPS, EMBEDDING)}
    require_tensors(f"EAGLE-3 in {folder}", own, _sizes(shape), _FIX)
    try:
        return state | _maps(state, shape)
    except MedusaError as error:
        raise MedusaError(f"the {_WHAT} in {folder} {error}") from error


def save(model: DraftModel, folder: Path, base: str, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a draft model in the public layout, as safetensors; ``base`` is what it was made for."""
    write_config(folder, model.shape.config() | {BASE_KEY: base})
    weights = {name: tensor.detach().to("cpu", dtype) for name, tensor in model.named_parameters()}
    if model.shape.maps_tokens:  # else vLLM refuses the maps
        weights |= {name: getattr(model, name).cpu() for name in _MAPS}
    write_file(weights, folder / WEIGHTS_NAME)


def _sizes(shape: DraftShape) -> dict[str, torch.Size]:
    """Names and sizes of the weights, without the maps between the vocabularies. Raises MedusaError."""
    try:
        with torch.device("meta"):
            model = DraftModel(shape)
    except RuntimeError as error:  # each of its sizes is possible, and a product of them is not
        raise MedusaError(
            f"the sizes in {CONFIG_NAME} make no layer ({reason_of(error)}): {AGAIN}"
        ) from error
    return {name: weight.shape for name, weight in model.named_parameters()}


def _maps(state: State, shape: DraftShape) -> State:
    """Both maps, checked. As in the public code they are ignored where the vocabularies are equal."""
    if not shape.maps_tokens:
        return {
            "d2t": torch.zeros(shape.vocabulary, dtype=torch.long),
            "t2d": torch.ones(shape.vocabulary, dtype=torch.bool),
        }
    if "d2t" not in state:
        raise MedusaError(
            f"lack d2t, which says which of {shape.vocabulary} tokens the {shape.draft_vocabulary} are: "
            "fetch them again"
        )
    offsets = state["d2t"]
    if tuple(offsets.shape) != (shape.draft_vocabulary,) or offsets.is_floating_point():
        raise MedusaError(f"hold d2t as {list(offsets.shape)}, not [{shape.draft_vocabulary}] whole numbers")
    tokens = torch.arange(shape.draft_vocabulary) + offsets.long()
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= shape.vocabulary or len(tokens.unique()) != len(tokens):
        found = counted(len(tokens.unique()), "token")
        raise MedusaError(
            f"map draft tokens to {found} from {low} to {high}, they must be {shape.draft_vocabulary} "
            f"different ones below {shape.vocabulary}: fetch them again"
        )
    known = torch.zeros(shape.vocabulary, dtype=torch.bool)
    known[tokens] = True
    if "t2d" in state and not torch.equal(state["t2d"].bool(), known):
        raise MedusaError("have a t2d that names other tokens than d2t: fetch them again")
    return {"d2t": offsets.long(), "t2d": known}
