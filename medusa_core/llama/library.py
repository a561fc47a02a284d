"""Compiles the C for this machine and loads it.

It needs Linux or macOS and a C compiler, which ``pip install ziglang`` brings too; elsewhere there is no
library, with the reason, and transformers' forward runs. The compiled file is kept in a folder under a name
that stands for the sources, the compiler and the instruction set.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.util
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from medusa_core.llama import structures

SWITCH = "MEDUSA_NATIVE"  # 0: never
ISA = "MEDUSA_ISA"  # the largest instruction set that may be used
_COMPILERS = "cc", "gcc", "clang"
_FLAGS = ("-O3", "-ffp-contract=off", "-std=gnu11", "-pthread", "-shared", "-fPIC", "-Wno-psabi")
_SECONDS = 60  # compile timeout
_CALLS_ALONE = 200
_CALLS_IN_A_ROW = 20


class NoLibraryError(Exception):
    """Why there is none on this machine."""


@dataclass(frozen=True)
class InstructionSet:
    """What a processor must have, and what the compiler is given."""

    name: str
    needed: tuple[str, ...]  # as /proc/cpuinfo names them
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
    "amx",
    (*_AVX512_BF16.needed, "amx_tile", "amx_bf16"),
    (*_AVX512_BF16.flags, "-mamx-tile", "-mamx-bf16"),
)
_SSE2 = InstructionSet("sse2", (), ())
_NEON = InstructionSet("neon", (), ())
_NEON_BF16 = InstructionSet("neon_bf16", ("bf16",), ("-march=armv8.2-a+bf16",))
# The largest first; the last one runs on every processor of its kind.
INSTRUCTION_SETS = {
    "x86_64": (_AMX, _AVX512_BF16, _AVX512, _AVX2, _SSE2),
    "arm64": (_NEON_BF16, _NEON),
}


class Library:
    """The compiled functions, and on how many threads they run."""

    def __init__(self, functions: ctypes.CDLL, isa: str) -> None:
        self.functions = functions
        self.isa = isa
        self._alone = 0  # single-threaded calls that are left of a back-off
        self._since = 0  # calls since the last contended one

    @property
    def threads(self) -> int:
        """Threads for the next call: those of torch, or one for a while after contended calls.

        Threads wait for each other many times in a call. Where other programs need the processors too, each
        barrier can last until the system gives one back, and one thread alone is many times as fast.
        """
        self._since += 1
        if self._alone:
            self._alone -= 1
            return 1
        return torch.get_num_threads()

    def was_late(self) -> None:
        """Record a contended call. One may be chance, two in a row are not."""
        if self._since <= _CALLS_IN_A_ROW:
            self._alone = _CALLS_ALONE
        self._since = 0

    @classmethod
    def load(cls, path: Path, isa: str) -> Library:
        """Raises OSError for a file that is no library for this machine."""
        functions = ctypes.CDLL(str(path))
        _declare(functions)
        if not functions.usable():
            raise NoLibraryError(f"this system does not allow {isa}")
        return cls(functions, isa)


def library_for_this_machine(folder: Path) -> Library:
    """The library from ``folder``, compiled where it is not there yet.

    Raises NoLibraryError with the reason where this machine can have none, OSError where the folder cannot be
    read or written to.
    """
    if os.environ.get(SWITCH, "") == "0":
        raise NoLibraryError(f"{SWITCH} is 0")
    if sys.platform not in ("linux", "darwin"):
        raise NoLibraryError("it needs Linux or macOS")
    compiler = _compiler()
    *larger, smallest = instruction_sets()
    for isa in larger:
        with contextlib.suppress(NoLibraryError):  # an old compiler, or a system without AMX
            return _library_for(compiler, isa, folder)
    return _library_for(compiler, smallest, folder)


def instruction_sets() -> list[InstructionSet]:
    """Those of this processor, the largest first and none above the one that MEDUSA_ISA names.

    The last one runs everywhere. Raises NoLibraryError.
    """
    known = INSTRUCTION_SETS.get(machine())
    if known is None:
        raise NoLibraryError(f"it does not know {machine()} processors")
    largest = os.environ.get(ISA, "")
    names = [one.name for one in known]
    if largest and largest not in names:
        raise NoLibraryError(f"{ISA} is {largest}: for {machine()} it can be {', '.join(names)}")
    found = _processor_features()
    allowed = known[names.index(largest) :] if largest else known
    return [one for one in allowed if found.issuperset(one.needed)]


def machine() -> str:
    """The kind of this processor, by one name on all systems."""
    name = platform.machine().lower()
    return {"aarch64": "arm64", "amd64": "x86_64"}.get(name, name)


def _library_for(compiler: Sequence[str], isa: InstructionSet, folder: Path) -> Library:
    sources = sorted(Path(__file__).parent.glob("*.[ch]"))
    text = b"".join(source.read_bytes() for source in sources)
    flags = *_FLAGS, *isa.flags
    name = f"llama-{isa.name}-{_digest(b'|'.join([text, *map(str.encode, (*compiler, *flags))]))}"
    for path in folder.glob(f"{name}-*.so"):
        if _is_own(path) and path.name == f"{name}-{_digest(path.read_bytes())}.so":
            return Library.load(path, isa.name)
    path = _compile([*compiler, *flags], [path for path in sources if path.suffix == ".c"], folder, name)
    return Library.load(path, isa.name)


def _declare(functions: ctypes.CDLL) -> None:
    """Types of arguments and results. Raises NoLibraryError where a structure has another size in C."""
    number, address, pointer = structures.NUMBER, structures.ADDRESS, ctypes.POINTER
    arguments = {
        "usable": [],
        "run_product": [pointer(structures.Linear), address, number, address, number],
        "work_bytes": [pointer(structures.Model), number, number, number],
        "forward": [pointer(structures.Model), pointer(structures.Batch)],
        "keep_rows": [address, address, number, number, number, number, address, number],
        "heads_bytes": [pointer(structures.Heads), number, number],
        "run_heads": [pointer(structures.Heads), number, address, *[number] * 2, *[address] * 3, number],
        "greedy_step": [pointer(structures.Greedy)],
        "size_of_structure": [number],
    }
    for name, types in arguments.items():
        function = getattr(functions, name)
        function.argtypes, function.restype = types, number
    for index, structure in enumerate(structures.ALL):
        if functions.size_of_structure(index) != ctypes.sizeof(structure):
            raise NoLibraryError(f"{structure.__name__} has another size in C")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def _is_own(path: Path) -> bool:
    """Whether nobody else can have written it."""
    status = path.stat()
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _compiler() -> list[str]:
    """The command of a C compiler. Raises NoLibraryError where there is none."""
    found = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if found is not None:
        return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise NoLibraryError("there is no C compiler: pip install ziglang brings one")


def _compile(command: Sequence[str], sources: Sequence[Path], folder: Path, name: str) -> Path:
    """The compiled file, whose name has a digest of its contents: a damaged one could crash.

    Raises NoLibraryError where the compiler refuses, OSError where the folder does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        new = Path(temporary) / name
        whole = [*command, *map(str, sources), "-o", str(new), "-lm"]
        try:
            done = subprocess.run(whole, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise NoLibraryError("the C compiler takes too long") from error
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise NoLibraryError(f"the C compiler fails: {lines[0][-200:]}")
        new.chmod(stat.S_IRWXU)
        path = folder / f"{name}-{_digest(new.read_bytes())}.so"
        os.replace(new, path)  # whole or not at all, also with two processes
    return path


def _processor_features() -> set[str]:
    """Names of /proc/cpuinfo; on macOS, where there is no such file, what arm64 always has is enough."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    named = (line for line in lines if line.lower().startswith(("flags", "features")))
    return next((set(line.split(":", 1)[1].split()) for line in named), set())
