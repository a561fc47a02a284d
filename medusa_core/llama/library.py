"""The C for this machine, by the largest instruction set that it has.

It needs Linux or macOS and a C compiler, which ``pip install ziglang`` brings too; elsewhere there is no
library, with the reason.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import shlex
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import torch

from medusa_core.errors import MedusaError, name_fix
from medusa_core.hardware.processor import ISA_VARIABLE, processor_flags
from medusa_core.llama import structures
from medusa_core.llama.compile_c import (
    CompilerError,
    CompilerTimeoutError,
    NoLibraryError,
    Recipe,
    open_library,
)

__all__ = ["CompilerError", "InstructionSet", "Library", "NoLibraryError", "library_for_this_machine"]

_log = logging.getLogger(__name__)

SWITCH = "MEDUSA_NATIVE"  # 0: never
_FLAGS = ("-O3", "-ffp-contract=off", "-std=gnu11", "-pthread", "-shared", "-fPIC", "-Wno-psabi")
MORE_FLAGS = "MEDUSA_CFLAGS"  # for the compiler, after ours
_LATE_AGAIN = 8  # calls within which a second contended one begins a back-off
_SHORTEST, _LONGEST = 16, 512  # single-threaded calls of a back-off


@dataclass(frozen=True)
class InstructionSet:
    """What a processor must have, and what the compiler is given."""

    name: str
    needed: tuple[str, ...]  # flags as Linux names them
    flags: tuple[str, ...]


_AVX2 = InstructionSet("avx2", ("avx2", "fma"), ("-mavx2", "-mfma"))
_AVX512 = InstructionSet(
    "avx512",
    (*_AVX2.needed, "avx512f", "avx512bw", "avx512dq", "avx512vl"),
    (*_AVX2.flags, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"),
)
_AVX512_BF16 = InstructionSet(
    "avx512_bf16",
    (*_AVX512.needed, "avx512_bf16", "avx512_vnni"),
    (*_AVX512.flags, "-mavx512bf16", "-mavx512vnni"),
)
_AMX = InstructionSet(
    "amx", (*_AVX512_BF16.needed, "amx_tile", "amx_bf16"), (*_AVX512_BF16.flags, "-mamx-tile", "-mamx-bf16")
)
_SSE2 = InstructionSet("sse2", (), ())
_NEON = InstructionSet("neon", (), ())
_NEON_BF16 = InstructionSet("neon_bf16", ("bf16",), ("-march=armv8.2-a+bf16",))
# The largest first; the last one runs on every processor of its kind.
INSTRUCTION_SETS = {"x86_64": (_AMX, _AVX512_BF16, _AVX512, _AVX2, _SSE2), "arm64": (_NEON_BF16, _NEON)}


class Library:
    """The compiled functions, and on how many threads they run."""

    def __init__(self, functions: ctypes.CDLL, isa: str) -> None:
        self.functions = functions
        self.isa = isa
        self._run = threading.local()
        self._alone = 0  # single-threaded calls that are left of a back-off
        self._since = 0  # calls on all threads since the last contended one
        self._next_alone = _SHORTEST  # calls of the next back-off

    @property
    def count(self) -> int | None:
        """Threads for the run in this thread of the program; None: torch's own number."""
        return getattr(self._run, "count", None)

    @count.setter
    def count(self, count: int | None) -> None:
        self._run.count = count

    def begin_call(self) -> int:
        """Count a call; returns its threads: ``most_threads``, or one for a while after contended calls.

        Threads wait for each other many times in a call. Where other programs need the processors too, each
        barrier can last until the system gives one back, and one thread alone is many times as fast.
        """
        if self._alone:
            self._alone -= 1
            return 1
        self._since += 1
        return self.most_threads

    @property
    def most_threads(self) -> int:
        """Threads of a call that no other program delays."""
        return self.count or torch.get_num_threads()

    def was_late(self) -> None:
        """Record a contended call. One may be chance, two within a few calls begin a back-off.

        Each back-off is twice as long as the one before, up to a limit, until a contended call stands alone.
        Even an idle machine has two late calls in a row now and then, and one thread takes twice as long.
        """
        if self._since <= _LATE_AGAIN:
            self._alone, self._next_alone = self._next_alone, min(2 * self._next_alone, _LONGEST)
        else:
            self._next_alone = _SHORTEST
        self._since = 0


def library_for_this_machine(folder: Path) -> Library:
    """The library from ``folder``, compiled where it is not there yet.

    Raises NoLibraryError with the reason where this machine can have none.
    """
    if os.environ.get(SWITCH, "") == "0":
        raise NoLibraryError(f"{SWITCH} is 0")
    if sys.platform not in ("linux", "darwin"):
        raise NoLibraryError("it needs Linux or macOS")
    *larger, smallest = instruction_sets()
    for isa in larger:
        try:
            return _library_for(isa, folder)
        except CompilerTimeoutError:
            raise
        except NoLibraryError as reason:  # an old compiler, or a system that does not allow AMX
            _log.info("No forward in C by %s: %s", isa.name, reason)
    return _library_for(smallest, folder)


def instruction_sets() -> list[InstructionSet]:
    """The sets of this processor, the largest first and none above the one that MEDUSA_ISA names.

    The last one runs everywhere. Raises MedusaError for an unknown name there, NoLibraryError for an unknown
    processor.
    """
    known = INSTRUCTION_SETS.get(machine())
    if known is None:
        raise NoLibraryError(f"it does not know {machine()} processors")
    largest = os.environ.get(ISA_VARIABLE, "")
    names = [one.name for one in known]
    if largest and largest not in names:
        raise MedusaError(f"{ISA_VARIABLE} is {largest!r:.30}: {name_fix(largest, names)}")
    found = set(processor_flags().split())
    allowed = known[names.index(largest) :] if largest else known
    return [one for one in allowed if found.issuperset(one.needed)]


def machine() -> str:
    name = platform.machine().lower()
    return {"aarch64": "arm64", "amd64": "x86_64"}.get(name, name)


def _library_for(isa: InstructionSet, folder: Path) -> Library:
    try:
        more = shlex.split(os.environ.get(MORE_FLAGS, ""))
    except ValueError as error:
        raise NoLibraryError(f"{MORE_FLAGS} is not a list of flags: {error}") from error
    recipe = Recipe(
        title="the forward in C",
        sources=sorted(Path(__file__).parent.glob("*.[ch]")),
        flags=(*_FLAGS, *isa.flags, *more),
        machine=isa.name,
        functions=structures.FUNCTIONS,
    )
    functions = open_library(recipe, folder)
    for name, arguments in structures.FUNCTIONS.items():
        function = getattr(functions, name)
        function.restype, function.argtypes = structures.NUMBER, arguments
    if not functions.usable():
        raise NoLibraryError(f"this system does not allow {isa.name}")
    return Library(functions, isa.name)
