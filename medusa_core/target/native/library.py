"""Compiles the forward in C for this machine and loads it.

It needs Linux, a compiler that knows OpenMP and a processor with AVX-512 and bfloat16; elsewhere there is
no library, with the reason, and the forward in torch runs. What was compiled is kept in a folder under a name
that stands for the source, the compiler and the processor, and compiled anew, in a second, where any of them
is another one.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from medusa_core.target.native.structures import Batch, Greedy, Heads, Model

SWITCH = "MEDUSA_NATIVE"  # 0: never
_COMPILERS = "cc", "gcc", "clang"
_FLAGS = "-O3", "-march=native", "-std=gnu11", "-fopenmp", "-shared", "-fPIC"
_NEEDED = "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16", "avx512_vnni"
_SECONDS = 60  # that compiling may take
_CALLS_ALONE = 200
_CALLS_IN_A_ROW = 20


class NoLibraryError(Exception):
    """Why there is none on this machine."""


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

    @classmethod
    def load(cls, path: Path) -> Library:
        """Raises OSError for a file that is no library for this machine."""
        functions = ctypes.CDLL(str(path))
        number, address = ctypes.c_int64, ctypes.c_void_p
        for name in (
            "tiles_allowed",
            "work_bytes",
            "forward",
            "heads_bytes",
            "run_heads",
            "tile_room",
            "greedy_step",
        ):
            getattr(functions, name).restype = number
        functions.work_bytes.argtypes = [ctypes.POINTER(Model), number]
        functions.forward.argtypes = [ctypes.POINTER(Model), ctypes.POINTER(Batch)]
        functions.heads_bytes.argtypes = [ctypes.POINTER(Heads), number]
        functions.run_heads.argtypes = [ctypes.POINTER(Heads), number, address, number, number]
        functions.run_heads.argtypes += [address, address, address, number]
        functions.greedy_step.argtypes = [ctypes.POINTER(Greedy)]
        functions.run_answers.argtypes = [address]
        functions.run_answers.restype = number
        for function in (functions.keep_rows, functions.keep_tiled_rows):
            function.argtypes = [address, address, number, number, number, number, address, number]
            function.restype = None
        functions.tile_room.argtypes = [ctypes.POINTER(Model), number, number, number]
        return cls(functions, tiles=bool(functions.tiles_allowed()))


def library_for_this_machine(folder: Path) -> Library:
    """The library from ``folder``, compiled where it is not there yet.

    Raises NoLibraryError with the reason where this machine can have none, OSError where the folder cannot be
    read or written to.
    """
    if os.environ.get(SWITCH, "") == "0":
        raise NoLibraryError(f"{SWITCH} is 0")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NoLibraryError("it needs Linux on x86-64")
    flags = _processor_flags()
    if missing := [name for name in _NEEDED if name not in flags]:
        raise NoLibraryError(f"this processor has no {missing[0]}")
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise NoLibraryError("there is no C compiler")
    sources = sorted(Path(__file__).parent.glob("*.[ch]"))
    text = b"".join(source.read_bytes() for source in sources)
    key = [text, compiler.encode(), " ".join(sorted(flags)).encode(), *map(str.encode, _FLAGS)]
    name = f"forward-{_digest(b'|'.join(key))}"
    for path in folder.glob(f"{name}-*.so"):
        if _is_own(path) and path.name == f"{name}-{_digest(path.read_bytes())}.so":
            return Library.load(path)
    return Library.load(_compile(compiler, [path for path in sources if path.suffix == ".c"], folder, name))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def _is_own(path: Path) -> bool:
    """Whether nobody else can have written it."""
    status = path.stat()
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _compile(compiler: str, sources: list[Path], folder: Path, name: str) -> Path:
    """The compiled file, named by what is in it: a damaged one, which may crash, is told by its name.

    Raises NoLibraryError where the compiler refuses, OSError where the folder does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        new = Path(temporary) / name
        command = [compiler, *_FLAGS, *map(str, sources), "-o", str(new), "-lm"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise NoLibraryError("the C compiler takes too long") from error
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["without a word"]
            raise NoLibraryError(f"the C compiler fails: {lines[0][-200:]}")
        new.chmod(stat.S_IRWXU)
        path = folder / f"{name}-{_digest(new.read_bytes())}.so"
        os.replace(new, path)  # whole or not at all, also with two processes
    return path


def _processor_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), set())
