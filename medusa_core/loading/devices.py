"""Where a model goes and in which dtype, and how much room there is.

``auto`` takes CUDA, then MPS, then the CPU; bfloat16 where the hardware multiplies it or our C runs, float32
elsewhere. What is too large for one GPU is spread by accelerate over all of them and the CPU. The compiled C
of this machine is kept in the user's cache folder.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import torch

from medusa_core.errors import MedusaError
from medusa_core.hardware.processor import instruction_limit
from medusa_core.llama.library import Library, NoLibraryError, library_for_this_machine
from medusa_core.llama.weights import DTYPES
from medusa_core.loading.tuning import cache_folder

_CUDA_CONTEXT = 400 * 2**20  # kernels and handles that the driver loads for a process
_CGROUP = Path("/sys/fs/cgroup")
_LIMITS = (  # files with a container's limit, usage and kinds of usage, in both versions of cgroups
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
_CPU = torch.device("cpu")

DeviceMap = dict[str, torch.device | int | str] | str
Room = dict[int | str, int]  # bytes by GPU number and "cpu", as accelerate wants them


@dataclass(frozen=True)
class Placement:
    """Device, dtype, why this dtype, and how accelerate spreads the layers where one device is too small.

    Without a ``device_map`` the model is read to the CPU and then moved as a whole.
    """

    device: torch.device
    dtype: torch.dtype
    reason: str
    device_map: DeviceMap | None = None
    room: Room | None = None


def place(device: str, dtype: str) -> Placement:
    """Decide on one device. Raises MedusaError when a device is asked for but missing."""
    there = device_kinds()
    if (name := there[0] if device == "auto" else device) not in there:
        raise MedusaError(f"no {device} device here: use --device {', '.join(there)}")
    chosen = torch.device(name)
    kind, reason = (getattr(torch, dtype), "as asked") if dtype != "auto" else _auto_dtype(chosen)
    # Layer by layer onto the GPU, so that the CPU need not hold the whole model first.
    return Placement(chosen, kind, reason, {"": chosen} if chosen.type == "cuda" else None)


def spread(placement: Placement, needed: int, beside_layers: int, packed: bool) -> Placement:
    """The placement for ``needed`` bytes: over all GPUs and the CPU where its own GPU has too little room.

    ``beside_layers`` of them are not weights of layers, and may be needed on any device. Quantized layers
    (``packed``) stay on GPUs, since they do not run from the CPU.
    """
    if placement.device.type != "cuda" or needed <= free_memory(placement.device):
        return placement
    room: Room = {
        gpu: max(0, free_memory(_gpu(gpu)) - beside_layers) for gpu in range(torch.cuda.device_count())
    }
    if not packed:
        room["cpu"] = free_memory(_CPU)
    return replace(placement, device_map="auto", room=room)


def spare_memory(device: torch.device, packed: bool) -> int:
    """Bytes beside those on ``device`` that layers may be spread to."""
    if device.type != "cuda":
        return 0
    own = torch.cuda.current_device() if device.index is None else device.index
    others = sum(free_memory(_gpu(gpu)) for gpu in range(torch.cuda.device_count()) if gpu != own)
    return others + (0 if packed else free_memory(_CPU))


def free_memory(device: torch.device) -> int:
    """Bytes that can still be taken on a device: of the GPU, or of RAM within the container's limit."""
    if device.type == "cuda":
        return max(0, torch.cuda.mem_get_info(device)[0] - _CUDA_CONTEXT)
    return min([psutil.virtual_memory().available, *_free_in_container()])


def return_freed_memory() -> None:
    """Return the memory of freed tensors to the system; glibc would keep it, up to half of a model."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
        if trim is not None:
            trim(0)


def device_kinds() -> list[str]:
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    return [kind for kind, there in available.items() if there]


def _free_in_container() -> Iterator[int]:
    """The bytes that a container's limit leaves, where there is one; its page cache counts as free."""
    for limit, used, stat in _LIMITS:
        try:
            most, taken, rows = ((_CGROUP / name).read_text().split() for name in (limit, used, stat))
            parts = dict(zip(rows[::2], map(int, rows[1::2]), strict=True))
            yield int(most[0]) - int(taken[0]) + parts["inactive_file"] + parts["active_file"]
        except (OSError, ValueError, KeyError):  # no such file, or the limit is "max"
            continue


def _gpu(number: int) -> torch.device:
    return torch.device("cuda", number)


def _auto_dtype(device: torch.device) -> tuple[torch.dtype, str]:
    if device.type == "cuda" and torch.cuda.is_bf16_supported():
        return torch.bfloat16, "the GPU multiplies bfloat16 natively"
    if device.type == "cuda":
        return torch.float16, "the GPU has no bfloat16 units"
    if device.type == "mps":
        return torch.float16, "float16 is what Apple GPUs are fast at"
    if cpu_has_bf16():
        return torch.bfloat16, "the CPU multiplies bfloat16 natively"
    if isinstance(native_library(), Library):
        return torch.bfloat16, "the forward in C reads half as many bytes as in float32"
    return torch.float32, "the CPU has no bfloat16 units"


def cpu_has_bf16() -> bool:
    """Whether the CPU has AMX or AVX-512 bf16 instructions, as far as torch can tell, and may use them."""
    if instruction_limit() in ("avx512", "avx2", "sse2"):
        return False
    probes = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(getattr(torch.cpu, probe, bool)() for probe in probes)


_ONE_AT_A_TIME = threading.Lock()
_log = logging.getLogger(__name__)


def native_library() -> Library | NoLibraryError:
    """The compiled C, or why this machine can have none. It is looked for once a process."""
    with _ONE_AT_A_TIME:
        found = _look_for_library(cache_folder() / "native")
    return Library(found.functions, found.isa) if isinstance(found, Library) else found


def runs_in_c(dtype: torch.dtype, device: str) -> bool:
    """Whether the C runs models of its families in ``dtype`` on a kind of device."""
    return device == "cpu" and dtype in DTYPES and isinstance(native_library(), Library)


@functools.cache
def _look_for_library(folder: Path) -> Library | NoLibraryError:
    """The library or the reason, which is logged too; either may take a minute where the compiler hangs."""
    try:
        return library_for_this_machine(folder)
    except NoLibraryError as reason:
        _log.info("No forward in C: %s", reason)
        return reason
