"""Read tensors from files: safetensors, sharded or not, and ``.pt`` by the loader that executes nothing.

This module knows which files hold heads, not what the tensors' names mean. Names, shapes and kinds are read
from a safetensors file's header by safetensors itself: it refuses a file that was cut short, which
huggingface_hub's parser of local headers does not notice.
"""

from __future__ import annotations

import json
import math
import pickle
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from math import prod
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from safetensors import SafetensorError, safe_open

from medusa_core.checkpoints.names import CONFIG_NAME, HEADS_NAME, INDEX_NAME, WEIGHTS_NAME
from medusa_core.errors import MedusaError, reason_of
from medusa_core.files import read_text

AGAIN = "fetch or save it again"
_CODE = re.compile(r"GLOBAL (\S+)")  # the global that a pickle asked for, in the words of torch's loader
FULL_PREFIX = "medusa_head."  # prefix of the heads' tensors in a whole model
State = dict[str, torch.Tensor]


class Layout(Enum):
    """In which files a folder holds heads."""

    HEADS = "files of their own"  # v1 and v2
    VLLM = "vLLM's format"
    FULL = "inside the checkpoint of the model"


def layout_of(folder: Path) -> Layout | None:
    """How a folder holds heads, or None when it holds none. Raises MedusaError for damaged files."""
    if any(folder.glob(f"{HEADS_NAME}*.safetensors")) or (folder / f"{HEADS_NAME}.pt").is_file():
        return Layout.HEADS
    config = read_config(folder)
    names = config.get("architectures")
    if (isinstance(names, list) and "MedusaModel" in names) or config.get("model_type") == "medusa":
        return Layout.VLLM
    if files_with_heads(folder):  # by the index alone, since its files may not be fetched yet
        return Layout.FULL
    with suppress(MedusaError):  # damaged weights are the model's loader's to report
        return Layout.FULL if headers(folder, WEIGHTS_NAME, lambda n: n.startswith(FULL_PREFIX)) else None
    return None


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's config.json; empty when there is none. Raises MedusaError when it is no JSON object."""
    file = folder / CONFIG_NAME
    return read_json(file) if file.is_file() else {}


def require_rope_factors(config: Any, place: str = "") -> None:
    """Raise MedusaError for a factor of rotary positions below 1, of which transformers only warns.

    ``place`` is where in the config ``config`` stands.
    """
    for key, value in config.items() if isinstance(config, dict) else ():
        possible = value is None or (type(value) in (int, float) and 1 <= value < math.inf)
        if key == "factor" and "rope_" in place and not possible:
            raise MedusaError(f"{place}factor is {value!r}: it must be a number from 1 on")
        require_rope_factors(value, f"{place}{key}.")


def whole_number(
    config: Mapping[str, Any], name: str, default: int | None = None, *, most: int = 2**24
) -> int:
    """A number that a config gives. Raises MedusaError unless it is a whole one from 1 to ``most``."""
    value = default if config.get(name) is None else config[name]
    if type(value) is not int or not 1 <= value <= most:
        raise MedusaError(f"{name} is {value!r}: it must be a whole number from 1 to {most}")
    return value


def read_state(folder: Path) -> State:
    """All tensors of the heads in a folder under the names they have there. Raises MedusaError."""
    layout = layout_of(folder)
    if layout is None:
        raise MedusaError(
            f"{folder} holds no heads: name a folder with {HEADS_NAME}.safetensors or {HEADS_NAME}.pt"
        )
    if layout is Layout.FULL:
        state = read_tensors(folder, WEIGHTS_NAME, lambda name: name.startswith(FULL_PREFIX))
        return {name.removeprefix(FULL_PREFIX): tensor for name, tensor in state.items()}
    if layout is Layout.VLLM:
        return read_tensors(folder, WEIGHTS_NAME, lambda _: True)
    if any(folder.glob(f"{HEADS_NAME}*.safetensors")):
        return read_tensors(folder, f"{HEADS_NAME}.safetensors", lambda _: True)
    return read_pickled(folder / f"{HEADS_NAME}.pt")


def read_tensors(folder: Path, name: str, wanted: Callable[[str], bool], what: str = "heads") -> State:
    """The wanted tensors of ``name`` or of its shards; no other file is read.

    Raises MedusaError that says it could not read ``what``.
    """
    state: State = {}
    for file in shards(folder, name, wanted):
        try:
            with safe_open(file, framework="pt") as opened:
                state |= {key: opened.get_tensor(key) for key in opened.keys() if wanted(key)}  # noqa: SIM118
                state |= _aliases(opened.metadata(), state, wanted)
        except (SafetensorError, OSError, RuntimeError) as error:
            raise MedusaError(f"cannot read the {what} in {folder}: {file_fault(file, error)}") from error
    index = folder / f"{name}.index.json"
    if index.is_file() and not (folder / name).is_file():
        state |= _aliases(read_json(index).get("metadata"), state, wanted)
    _require_plain(state, folder)
    return state


def _aliases(notes: Any, state: State, wanted: Callable[[str], bool]) -> State:
    """Tensors under their other names: one that is used twice is saved once, and noted in header or index."""
    pairs = notes.items() if isinstance(notes, dict) else ()
    return {name: state[key] for name, key in pairs if isinstance(key, str) and key in state and wanted(name)}


def file_fault(file: Path, error: BaseException) -> str:
    """Why a file of weights could not be read, and what to do."""
    if isinstance(error, OSError):
        try:  # safetensors calls a file missing that may not be read
            file.open("rb").close()
        except OSError as own:
            error = own
        return f"{file.name} cannot be opened ({reason_of(error)}): check it and its permissions"
    reason = reason_of(error).removeprefix("Error while deserializing header: ")
    return f"{file.name} is damaged or cut off ({reason}): {AGAIN}"


def shards(folder: Path, name: str, wanted: Callable[[str], bool]) -> list[Path]:
    """The files that hold the wanted tensors of ``name``: itself, or the shards that its index names.

    Raises MedusaError for a damaged index, or one that names what is not there.
    """
    if (folder / name).is_file():
        return [folder / name]
    index = folder / f"{name}.index.json"
    if not index.is_file():
        # Shards without their index are still whole files: all that they hold is read.
        return sorted(folder.glob(f"{name.removesuffix('.safetensors')}-*.safetensors"))
    files = sorted({file for key, file in _weight_map(index).items() if wanted(key)})
    for file in files:
        # The index is untrusted text: it may name files beside it, and no path.
        if Path(file).name != file or not (folder / file).is_file():
            raise MedusaError(f"{index} names {file}, which is not there: fetch or save the files again")
    return [folder / file for file in files]


def files_with_heads(folder: Path) -> list[str]:
    """Names of the shards of a whole model that hold heads, by its index; empty without one."""
    index = folder / INDEX_NAME
    if not index.is_file():
        return []
    return sorted({file for name, file in _weight_map(index).items() if name.startswith(FULL_PREFIX)})


def load_pickled(file: Path, device: str = "cpu", *, mapped: bool = False) -> Any:
    """What a pickle holds, by the loader that runs nothing in it.

    ``mapped`` leaves the numbers on the disk, where the file has torch's newer format.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the pickle's protocol, which the user cannot change
        return torch.load(file, map_location=device, weights_only=True, mmap=mapped and is_zipfile(file))


def read_pickled(file: Path, what: str = "heads", device: str = "cpu", *, mapped: bool = False) -> State:
    """All tensors of a pickle as ``load_pickled`` reads it. Raises MedusaError that names ``what`` it is."""
    try:
        state = load_pickled(file, device, mapped=mapped)
    except Exception as error:  # reading a damaged pickle can raise anything
        raise MedusaError(f"cannot read the {what} in {file.parent}: {pickle_fault(file, error)}") from error
    if not isinstance(state, dict) or not all(isinstance(t, torch.Tensor) for t in state.values()):
        raise MedusaError(f"{file} is not a dictionary of tensors: it holds no {what}, name another folder")
    if odd := [name for name in state if not isinstance(name, str)]:
        raise MedusaError(f"{file} calls a tensor {odd[0]!r:.40}, which is not a string: give it a name")
    _require_plain(state, file, device)
    return state


def _require_plain(state: State, source: Path, device: str = "cpu") -> None:
    """Raise MedusaError for a sparse, nested or complex tensor, or one on another device than ``device``."""
    for name, t in state.items():
        if t.layout != torch.strided or t.device.type != device or t.is_nested or t.is_complex():
            raise MedusaError(
                f"{name} in {source} is not a plain tensor: save it as a dense one of real numbers"
            )


def pickle_fault(file: Path, error: Exception) -> str:
    """Why a pickle cannot be read by the loader that runs nothing in it."""
    if isinstance(error, OSError):
        return file_fault(file, error)
    if called := _CODE.search(str(error)):
        return (
            f"{file.name} holds code ({called[1]}), which was not run: use one saved as tensors "
            "alone, best as safetensors"
        )
    if isinstance(error, pickle.UnpicklingError):  # torch's own message advises unsafe loading
        return (
            f"{file.name} holds more than tensors, perhaps code, or is damaged, and nothing in it was run: "
            "use one saved as safetensors, or fetch it again"
        )
    if isinstance(error, NotImplementedError):  # torch cannot map such tensors without their numbers
        return f"{file.name} holds nested or quantised tensors: save dense ones of floating-point numbers"
    return f"{file.name} is damaged or cut off: {AGAIN}"


def _weight_map(index: Path) -> dict[str, str]:
    found = read_json(index).get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(file, str) for file in found.values()):
        raise MedusaError(f"{index} has no weight_map: fetch or save the files again")
    return found


def read_json(file: Path, fix: str = AGAIN) -> dict[str, Any]:
    """The JSON object in a file. Raises MedusaError that ends in ``fix``."""
    try:
        content = json.loads(read_text(file))
    except OSError as error:
        way_out = "check its permissions" if isinstance(error, PermissionError) else fix
        raise MedusaError(f"cannot read {file} ({reason_of(error)}): {way_out}") from error
    except (ValueError, RecursionError) as error:
        raise MedusaError(f"{file} is not JSON ({reason_of(error)}): {fix}") from error
    if not isinstance(content, dict):
        raise MedusaError(f"{file} is not a JSON object: {fix}")
    return content


_FLOATS = ("F64", "F32", "F16", "BF16")  # safetensors' names of kinds that are converted to the model's dtype


@dataclass(frozen=True)
class TensorHeader:
    """A tensor of a file: how many numbers of which kind it has."""

    name: str
    count: int
    kind: str

    @property
    def is_plain(self) -> bool:
        """Whether its numbers are converted to the model's dtype when it is read."""
        return self.kind in _FLOATS

    @property
    def width(self) -> float:
        """Bytes of a number, by the digits that safetensors' names of kinds have."""
        digits = re.search(r"\d+", self.kind)
        return int(digits[0]) / 8 if digits else 1


def tensor_headers(file: Path) -> list[TensorHeader]:
    """The tensors of a file. Raises MedusaError when it is damaged."""
    try:
        with safe_open(file, framework="pt") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            return [TensorHeader(n, prod(one.get_shape()), one.get_dtype()) for n, one in slices.items()]
    except (SafetensorError, OSError) as error:
        raise MedusaError(f"cannot read {file.parent}: {file_fault(file, error)}") from error


def headers(folder: Path, name: str, wanted: Callable[[str], bool]) -> list[TensorHeader]:
    """The wanted tensors of a folder's file, or of its shards. Raises MedusaError for damaged files."""
    files = shards(folder, name, wanted)
    return [header for file in files for header in tensor_headers(file) if wanted(header.name)]


def require_tensors(owner: str, state: State, wanted: Mapping[str, Sequence[int]], fix: str) -> None:
    """Raise MedusaError unless the state holds the ``wanted`` tensors, floats of these shapes, and no others.

    ``owner`` names what they belong to, ``fix`` what to do about it.
    """
    if missing := sorted(wanted.keys() - state.keys()):
        raise MedusaError(f"{owner} lacks {', '.join(missing[:3])}: {fix}")
    if strange := sorted(map(str, state.keys() - wanted.keys())):
        raise MedusaError(f"{owner} holds {strange[0]!r}, which does not belong to it: {fix}")
    for name, size in wanted.items():
        tensor = state[name]
        if list(tensor.shape) != list(size):
            shape = list(tensor.shape)
            raise MedusaError(f"{name} of {owner} has shape {shape}, it must be {list(size)}: {fix}")
        if not tensor.is_floating_point() or tensor.itemsize == 1:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise MedusaError(f"{name} of {owner} is {kind}, it must hold floats of at least 16 bits: {fix}")


def require_finite(what: str, state: State, dtype: torch.dtype) -> None:
    """Raise MedusaError for NaN or infinity, which would silently make every guess the same.

    ``state`` are the tensors as they were read, ``dtype`` what they will have; ``what`` names their owner.
    """
    for name, tensor in state.items():
        if not tensor.is_floating_point() or _is_finite(tensor.to(dtype)):
            continue
        # bfloat16 has the range of float32, so only float16 has a wider dtype.
        wider = dtype == torch.float16 and _is_finite(tensor.float())
        fix = "use --dtype bfloat16 or float32" if wider else "fetch, convert or train it again"
        too_large = f"numbers too large for {str(dtype).removeprefix('torch.')}"
        held = too_large if _is_finite(tensor.double()) else "NaN or infinity"
        raise MedusaError(f"{name} of {what} holds {held}: {fix}")


def _is_finite(tensor: torch.Tensor) -> bool:
    # The extremes carry a NaN along, and unlike isfinite they need no memory of the tensor's size.
    low, high = torch.aminmax(tensor)
    return bool(torch.isfinite(low) & torch.isfinite(high))
