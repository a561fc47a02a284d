"""The forward in C for this machine.

It needs Linux, a compiler that knows OpenMP and a processor with AVX-512 and bfloat16; elsewhere there is
no library, with the reason, and the forward in torch runs.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import sys
from pathlib import Path

import torch

from medusa_core.target.native.compile_c import CompilerError, NoLibraryError, Recipe, open_library
from medusa_core.target.native.structures import STRUCTURES, Answers, Batch, Greedy, Heads, Model

__all__ = ["CompilerError", "Library", "NoLibraryError", "library_for_this_machine"]

SWITCH = "MEDUSA_NATIVE"  # 0: never
MORE_FLAGS = "MEDUSA_CFLAGS"  # for the compiler, behind ours
_FLAGS = "-O3", "-march=native", "-std=gnu11", "-fopenmp", "-shared", "-fPIC"
_NEEDED = "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16", "avx512_vnni"
_CALLS_ALONE = 200
_CALLS_IN_A_ROW = 20
_NUMBER, _ADDRESS = ctypes.c_int64, ctypes.c_void_p
_KEEP = _ADDRESS, _ADDRESS, _NUMBER, _NUMBER, _NUMBER, _NUMBER, _ADDRESS, _NUMBER
_FUNCTIONS: dict[str, tuple[type | None, tuple[type, ...]]] = {  # what each gives back and takes
    "tiles_allowed": (_NUMBER, ()),
    "tile_room": (_NUMBER, (ctypes.POINTER(Model), _NUMBER, _NUMBER, _NUMBER)),
    "work_bytes": (_NUMBER, (ctypes.POINTER(Model), _NUMBER)),
    "forward": (_NUMBER, (ctypes.POINTER(Model), ctypes.POINTER(Batch))),
    "keep_rows": (None, _KEEP),
    "keep_tiled_rows": (None, _KEEP),
    "heads_bytes": (_NUMBER, (ctypes.POINTER(Heads), _NUMBER)),
    "run_heads": (
        _NUMBER,
        (ctypes.POINTER(Heads), _NUMBER, _ADDRESS, _NUMBER, _NUMBER, _ADDRESS, _ADDRESS, _ADDRESS, _NUMBER),
    ),
    "greedy_step": (_NUMBER, (ctypes.POINTER(Greedy),)),
    "run_answers": (_NUMBER, (ctypes.POINTER(Answers),)),
}


class Library:
    """The compiled functions, and on how many threads they run."""

    def __init__(self, functions: ctypes.CDLL, *, tiles: bool) -> None:
        """``tiles``: whether products run on AMX."""
        self.functions = functions
        self.tiles = tiles
        self._alone = 0  # calls that are left to one thread
        self._since = 0  # calls since one in which a thread was late

    @property
    def threads(self) -> int:
        """For the next call: those of torch, or one for a while after some were late.

        Threads meet many times in a call. Where other programs need the processors too, each meeting can wait
        for the system to give one back, and a thread alone is many times as fast.
        """
        self._since += 1
        if self._alone:
            self._alone -= 1
            return 1
        return torch.get_num_threads()

    def was_late(self) -> None:
        """A thread kept the others waiting in a call. Once may be chance, twice in a row is not."""
        if self._since <= _CALLS_IN_A_ROW:
            self._alone = _CALLS_ALONE
        self._since = 0


def library_for_this_machine(folder: Path) -> Library:
    """The library from ``folder``, compiled where it is not there yet.

    Raises NoLibraryError with the reason where this machine can have none.
    """
    if os.environ.get(SWITCH, "") == "0":
        raise NoLibraryError(f"{SWITCH} is 0")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NoLibraryError("it needs Linux on x86-64")
    processor = _processor_flags()
    if missing := [name for name in _NEEDED if name not in processor]:
        raise NoLibraryError(f"this processor has no {missing[0]}")
    try:
        more = shlex.split(os.environ.get(MORE_FLAGS, ""))
    except ValueError as error:
        raise NoLibraryError(f"{MORE_FLAGS} is no list of flags: {error}") from error
    recipe = Recipe(
        title="the forward in C",
        sources=sorted(Path(__file__).parent.glob("*.[ch]")),
        flags=(*_FLAGS, *more),
        machine=" ".join(sorted(processor)),
        functions=_FUNCTIONS,
        header="model.h",
        structures=STRUCTURES,
    )
    functions = open_library(recipe, folder)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(functions, name)
        function.restype, function.argtypes = result, arguments
    return Library(functions, tiles=bool(functions.tiles_allowed()))


def _processor_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), set())
