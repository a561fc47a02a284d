"""The tensors of a multi-token-prediction layer in a folder, alone or beside those of its model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from medusa_core.checkpoints.files import State, headers, read_tensors, require_tensors
from medusa_core.checkpoints.heads import write_config, write_file
from medusa_core.checkpoints.names import BASE_KEY, WEIGHTS_NAME
from medusa_core.drafters import DraftSize
from medusa_core.errors import MedusaError

if TYPE_CHECKING:
    from medusa_core.drafters.mtp.model import MtpLayer
    from medusa_core.loading.model_size import ModelSize

_PROJECTION = re.compile(r"model\.layers\.(\d+)\.eh_proj\.weight")
# Tensors of the model itself, which some files repeat, and what each is.
SHARED = {"embed_tokens.weight": "embedding", "shared_head.head.weight": "LM head"}
_OTHER_KINDS = {  # parts of layers that are computed in another way
    "kv_a_proj_with_mqa": "multi-head latent attention",
    "experts": "experts",
    "q_norm": "norms of queries and keys",
    "bias": "biases",
}


def owns(folder: Path) -> bool:
    """Whether a file of the folder has a projection of embedding and hidden state."""
    try:
        return bool(_layers(folder))
    except MedusaError:  # a damaged file: whoever reads the folder says so
        return False


def size(folder: Path, base: ModelSize) -> DraftSize:
    """The memory it takes beside ``base``, by the files' headers. Raises MedusaError."""
    prefix = _prefix(folder)
    found = headers(folder, WEIGHTS_NAME, lambda name: name.startswith(prefix))
    counts = {one.name.removeprefix(prefix): one.count for one in found}
    hidden = max(counts.get("enorm.weight", 0), 1)
    keys = sum(counts.get(f"self_attn.{part}_proj.weight", 0) for part in ("k", "v"))
    own = sum(count for name, count in counts.items() if name not in SHARED)
    return DraftSize(own, hidden + keys // hidden)


def read_layer(folder: Path) -> tuple[State, int]:
    """The first layer's tensors under their names in it, and how many such layers there are.

    Raises MedusaError for damaged files.
    """
    prefix = _prefix(folder)
    found = read_tensors(folder, WEIGHTS_NAME, lambda name: name.startswith(prefix), "MTP layer")
    return {name.removeprefix(prefix): tensor for name, tensor in found.items()}, len(_layers(folder))


def require_kind(state: State, folder: Path) -> None:
    """Raise MedusaError for a layer whose parts are of another kind than a Llama's."""
    for name in state:
        for part, words in _OTHER_KINDS.items():
            if part in name.split("."):
                raise MedusaError(
                    f"the MTP layer in {folder} has {words} ({name}), which are not computed here: name a "
                    "model whose layer is a Llama's"
                )


def check_layer(state: State, layer: MtpLayer, folder: Path) -> None:
    """Raise MedusaError where the tensors do not have the names and shapes of ``layer``."""
    wanted = {name: tensor.shape for name, tensor in layer.state_dict().items()}
    again = "it belongs to another model, name one whose layer is a Llama's, or fetch it again"
    require_tensors(f"the MTP layer in {folder}", state, wanted, again)


def save(layer: MtpLayer, folder: Path, number: int, base: str, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a layer in the published names, as layer ``number`` of the model ``base``."""
    write_config(folder, {"num_nextn_predict_layers": 1, BASE_KEY: base})
    prefix = f"model.layers.{number}."
    weights = {prefix + name: tensor.detach().to("cpu", dtype) for name, tensor in layer.named_parameters()}
    write_file(weights, folder / WEIGHTS_NAME)


def _prefix(folder: Path) -> str:
    layers = _layers(folder)
    if not layers:
        raise MedusaError(f"{folder} holds no model.layers.N.eh_proj.weight: name a folder that does")
    return f"model.layers.{layers[0]}."


def _layers(folder: Path) -> list[int]:
    """Numbers of the layers that predict one token more, in rising order."""
    named = headers(folder, WEIGHTS_NAME, lambda name: _PROJECTION.fullmatch(name) is not None)
    return sorted(int(found[1]) for one in named if (found := _PROJECTION.fullmatch(one.name)))
