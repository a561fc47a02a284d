"""The one file that knows names and layouts of weight files.

Heads come in two public formats (i = head, j = layer, L = layers): v1 has ``{i}.{j}.linear.weight/bias`` and
``{i}.{L}.weight``; v2 leaves the last one out and uses the base's LM head. Their number and depth are read
from the tensors, since published configs are known to disagree with their files. Pickled files are read
with torch's weights-only loader, which executes nothing.
"""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub import save_torch_state_dict, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError
from safetensors.torch import load_file

from medusa_core.errors import MedusaError
from medusa_core.heads import MedusaHeads

HEADS_NAME = "medusa_lm_head"
HEADS_FOLDER = "heads"
TREE_NAME = "tree.json"
GPU_TREE_NAME = "tree-gpu.json"
ACCURACIES_NAME = "accuracies.json"
ADAPTER_NAME = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
SHARD_SIZE = "9MB"  # a Space takes files up to 10 MB without large-file storage

MODEL_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
HEAD_FILES = [
    "config.json",
    f"{HEADS_NAME}*",
    TREE_NAME,
    GPU_TREE_NAME,
    ACCURACIES_NAME,
    ADAPTER_NAME,
    ADAPTER_CONFIG,
]
_BLOCK = re.compile(r"(\d+)\.(\d+)\.linear\.(weight|bias)")
_LAST = re.compile(r"(\d+)\.(\d+)\.weight")


@dataclass(frozen=True)
class HeadTensors:
    """Heads as they lie in a file: blocks [K, L, d, d] and [K, L, d], last layers [K, V, d] or None (v2)."""

    block_weight: torch.Tensor
    block_bias: torch.Tensor
    lm_weight: torch.Tensor | None


def embedded_model() -> Path:
    """The folder of the model that is part of the project."""
    return Path(__file__).resolve().parent.parent / "assets" / "model"


def locate(name: str, patterns: list[str]) -> Path:
    """A local folder as it is, or a hub repository downloaded to the cache. Raises MedusaError."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise MedusaError(f"there is no folder {name}: check the path")
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise MedusaError(
            f"{name!r} is neither a folder here nor a repository that can be fetched ({reason})"
        ) from error


def locate_model(name: str) -> Path:
    """The folder of a model and its tokenizer, downloaded if need be. Raises MedusaError."""
    folder = locate(name, MODEL_FILES)
    if not (folder / "config.json").is_file():
        raise MedusaError(f"{folder} has no config.json: it is not a model folder")
    return folder


def heads_folder(model_folder: Path) -> Path | None:
    """The heads that belong to a model: beside its weights or in its ``heads`` folder."""
    for folder in (model_folder / HEADS_FOLDER, model_folder):
        if folder.is_dir() and any(folder.glob(f"{HEADS_NAME}*")):
            return folder
    return None


def beside_heads(folder: Path, name: str) -> Path | None:
    """A file that was made for these heads, their tree or their accuracies, when there is one."""
    file = folder / name
    return file if file.is_file() else None


def tree_beside(folder: Path, device: torch.device) -> Path | None:
    """The tree that was made for these heads and this kind of device, else the one there is.

    A GPU verifies many nodes in about the time of one, so its best tree is larger than a CPU's.
    """
    own = beside_heads(folder, GPU_TREE_NAME) if device.type != "cpu" else None
    return own or beside_heads(folder, TREE_NAME)


def has_adapter(folder: Path) -> bool:
    """Whether the heads come with the low-rank adapter their base was trained with (Medusa-2)."""
    return (folder / ADAPTER_CONFIG).is_file()


def read_heads(folder: Path) -> HeadTensors:
    """Read heads in format v1 or v2 from a folder, strictly. Raises MedusaError."""
    state = _read_state(folder)
    blocks: dict[tuple[int, int, str], torch.Tensor] = {}
    last: dict[tuple[int, int], torch.Tensor] = {}
    for name, tensor in state.items():
        if match := _BLOCK.fullmatch(str(name)):
            blocks[int(match[1]), int(match[2]), match[3]] = tensor
        elif match := _LAST.fullmatch(str(name)):
            last[int(match[1]), int(match[2])] = tensor
        else:
            raise MedusaError(f"{folder} holds a tensor {name!r} that belongs to no Medusa head")
    if not blocks:
        raise MedusaError(f"{folder} holds no Medusa heads: no tensor is called 0.0.linear.weight")
    # Counted, not the largest number: a stray name cannot ask for a billion heads.
    count, layers = len({head for head, *_ in blocks}), len({layer for _, layer, _ in blocks})
    wanted = [(i, j, kind) for i in range(count) for j in range(layers) for kind in ("weight", "bias")]
    missing = [f"{i}.{j}.linear.{kind}" for i, j, kind in wanted if (i, j, kind) not in blocks]
    if last:
        missing += [f"{i}.{layers}.weight" for i in range(count) if (i, layers) not in last]
    if missing:
        raise MedusaError(f"{folder} has {count} heads of {layers} layers but lacks {', '.join(missing[:4])}")
    if extra := [f"{i}.{j}.weight" for i, j in last if i >= count or j != layers]:
        raise MedusaError(
            f"{folder} has {count} heads of {layers} layers, to which {extra[0]!r} does not belong"
        )
    tensors = HeadTensors(
        block_weight=_stack(folder, [blocks[i, j, "weight"] for i, j, k in wanted if k == "weight"], count),
        block_bias=_stack(folder, [blocks[i, j, "bias"] for i, j, k in wanted if k == "bias"], count),
        lm_weight=_stack(folder, [last[i, layers] for i in range(count)], count)[:, 0] if last else None,
    )
    _check_widths(folder, tensors)
    return tensors


def build_heads(tensors: HeadTensors, lm_head: torch.Tensor, source: Path) -> MedusaHeads:
    """Heads for a base whose LM head is ``lm_head`` [V, d], on its device and in its dtype.

    Raises MedusaError when hidden size or vocabulary differ.
    """
    width, lm_width = tensors.block_weight.shape[-1], lm_head.shape[1]
    if width != lm_width:
        raise MedusaError(
            f"the heads in {source} are {width} wide, the base model {lm_width}: they belong to another base"
        )
    rows = lm_head.shape[0] if tensors.lm_weight is None else tensors.lm_weight.shape[1]
    if rows != lm_head.shape[0]:
        raise MedusaError(
            f"the heads in {source} know {rows} tokens, the base model {lm_head.shape[0]}: "
            "they belong to another base"
        )
    like = {"device": lm_head.device, "dtype": lm_head.dtype}
    last = lm_head.detach() if tensors.lm_weight is None else tensors.lm_weight.to(**like)
    heads = MedusaHeads(tensors.block_weight.to(**like), tensors.block_bias.to(**like), last)
    return heads.requires_grad_(False).eval()


def save_heads(heads: MedusaHeads, folder: Path, base: str, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write heads in format v1 (v2 when they share the LM head) as safetensors of at most 9 MB each."""
    folder.mkdir(parents=True, exist_ok=True)
    # Copied, since the writer refuses views into the stacked tensors.
    state: dict[str, torch.Tensor] = {}
    for i in range(heads.count):
        for j in range(heads.layers):
            state[f"{i}.{j}.linear.weight"] = (
                heads.block_weight[i, j].detach().to(dtype, copy=True).contiguous()
            )
            state[f"{i}.{j}.linear.bias"] = heads.block_bias[i, j].detach().to(dtype, copy=True).contiguous()
        if not heads.shares_lm_head:
            state[f"{i}.{heads.layers}.weight"] = (
                heads.lm_weight[i].detach().to(dtype, copy=True).contiguous()
            )
    config: dict[str, object] = {
        "base_model_name_or_path": base,
        "medusa_num_heads": heads.count,
        "medusa_num_layers": heads.layers,
    }
    if heads.shares_lm_head:
        config["version"] = "2"
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    pattern = HEADS_NAME + "{suffix}.safetensors"
    save_torch_state_dict(state, folder, filename_pattern=pattern, max_shard_size=SHARD_SIZE)


def _read_state(folder: Path) -> dict[str, torch.Tensor]:
    files = sorted(folder.glob(f"{HEADS_NAME}*.safetensors"))
    pickled = folder / f"{HEADS_NAME}.pt"
    if not files and not pickled.is_file():
        raise MedusaError(f"{folder} holds no heads: expected {HEADS_NAME}.safetensors or {HEADS_NAME}.pt")
    state: dict[str, torch.Tensor] = {}
    try:
        for file in files:
            state |= load_file(file)
        if not files:
            state = torch.load(pickled, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise MedusaError(f"cannot read the heads in {folder}: {reason}") from error
    if not isinstance(state, dict) or not all(isinstance(t, torch.Tensor) for t in state.values()):
        raise MedusaError(f"{pickled} is not a dictionary of tensors: it is no heads file")
    return state


def _check_widths(folder: Path, tensors: HeadTensors) -> None:
    width = tensors.block_bias.shape[-1]
    weight, last = (
        tensors.block_weight.shape[2:],
        None if tensors.lm_weight is None else tensors.lm_weight.shape[1:],
    )
    if weight != (width, width) or (last is not None and (len(last) != 2 or last[1] != width)):
        raise MedusaError(
            f"the heads in {folder} do not fit together: biases are {width} wide, blocks {list(weight)}"
            + (f", last layers {list(last)}" if last is not None else "")
        )


def _stack(folder: Path, tensors: list[torch.Tensor], count: int) -> torch.Tensor:
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) != 1:
        raise MedusaError(f"the heads in {folder} differ in shape: {sorted(shapes)}")
    return torch.stack(tensors).unflatten(0, (count, -1))
