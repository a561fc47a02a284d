"""Compiles C for this machine and loads it; knows nothing of what the C does.

A compiled library is kept in a folder under a name that stands for the sources, the compiler, its flags and
the processor. It is compiled anew where one of them has changed.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import logging
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from medusa_core.files import read_bytes

_log = logging.getLogger(__name__)
_COMPILERS = "cc", "gcc", "clang"
_SECONDS = 60.0  # compile timeout


class NoLibraryError(Exception):
    """Why there is no library on this machine."""


class CompilerError(NoLibraryError):
    """The compiler makes no library that can be used."""


class CompilerTimeoutError(CompilerError):
    """The compiler hangs, as it would with other flags."""


@dataclass(frozen=True)
class Recipe:
    """What a library is made of, and what must be in it."""

    title: str  # for messages
    sources: Sequence[Path]  # C files, and the headers that they include
    flags: Sequence[str]
    machine: str  # further dependency beside sources, compiler and flags
    functions: Collection[str]

    def name(self, compiler: Sequence[str]) -> str:
        texts = map(os.fsencode, (self.machine, *compiler, *self.flags))
        data = b"\0".join([*(path.read_bytes() for path in self.sources), *texts])
        return f"{hashlib.sha256(data).hexdigest()[:24]}.so"


def open_library(recipe: Recipe, folder: Path) -> ctypes.CDLL:
    """The library from ``folder``, or compiled where it is not there or cannot be used.

    Where it cannot be kept there, it is compiled for this process alone. Raises NoLibraryError.
    """
    compiler = _compiler()
    kept = folder / recipe.name(compiler)
    reason: OSError | None = None
    try:
        folder.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
        _require_private(folder.stat())
        if found := _found(kept, recipe.functions):
            return found
    except OSError as error:
        reason = error
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "library"
        data = _compile(recipe, compiler, made)
        if reason is None:
            try:
                return _added(data, kept, recipe.functions)
            except OSError as error:  # it cannot be written to, or no programs may be run from it
                reason = error
        try:
            library = _loaded(made, recipe.functions)
        except OSError as error:
            raise CompilerError(f"what is compiled cannot be loaded: {_words(error)}") from error
    _log.warning(
        "Compiled %s for this process alone, since it cannot be kept in %s (%s): "
        "make it a folder of your own that others cannot write to, where programs may be run",
        recipe.title, folder, _words(reason),
    )  # fmt: skip
    return library


def _found(path: Path, functions: Collection[str]) -> ctypes.CDLL | None:
    """The kept library; a file in its place that cannot be used is removed."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    try:
        _require_private(status)
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would take forever
            raise OSError("it is not a regular file")
        return _loaded(path, functions)
    except (OSError, CompilerError) as error:
        _log.info("%s is compiled anew: %s", path, error)
        with suppress(OSError):
            path.unlink()
        return None


def _added(data: bytes, path: Path, functions: Collection[str]) -> ctypes.CDLL:
    """Keep ``data`` as the library at ``path`` and load it; what cannot be loaded is not kept."""
    new = path.with_name(f"new-{secrets.token_hex(12)}")  # under one name the loader would reuse the old file
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IRWXU), "wb") as file:
            file.write(data)
            os.fsync(file)
        library = _loaded(new, functions)
        os.replace(new, path)  # another process that compiles at this moment finds the whole file or none
        return library
    finally:
        new.unlink(missing_ok=True)


def _require_private(status: os.stat_result) -> None:
    """Raise OSError where somebody else than this user and root may write."""
    if status.st_uid not in {os.geteuid(), 0}:
        raise PermissionError(f"it belongs to user {status.st_uid}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError("other users may write to it")


def _loaded(path: Path, functions: Collection[str]) -> ctypes.CDLL:
    """The library in a file. Raises OSError, and CompilerError where a function is missing."""
    library = ctypes.CDLL(str(path))
    for name in functions:
        if not hasattr(library, name):
            raise CompilerError(f"the C compiler makes another library: there is no function {name} in it")
    return library


def _words(error: OSError) -> str:
    """The reason without the name of a file; the dynamic loader's errors have no fields."""
    return error.strerror or str(error).rpartition(": ")[2]


def _compiler() -> list[str]:
    """The command of a C compiler. Raises NoLibraryError where there is none."""
    found = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if found is not None:
        return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise NoLibraryError("there is no C compiler: pip install ziglang brings one")


def _compile(recipe: Recipe, compiler: Sequence[str], made: Path) -> bytes:
    """What the compiler writes to ``made``. Raises CompilerError."""
    sources = [str(path) for path in recipe.sources if path.suffix == ".c"]
    command = [*compiler, *recipe.flags, *sources, "-o", str(made), "-lm"]
    messages = made.with_name("messages")
    try:
        _log.warning("Compiling %s for this processor", recipe.title)
        status = _run(command, messages)
    except subprocess.TimeoutExpired as error:
        raise CompilerTimeoutError(f"the C compiler takes longer than {_SECONDS:g} seconds") from error
    except OSError as error:
        raise CompilerError(f"the C compiler cannot be run: {error}") from error
    if status:
        errors = messages.read_text(encoding="utf-8", errors="replace")
        lines = errors.strip().splitlines() or ["it printed nothing"]
        line = next((line for line in lines if "error" in line), lines[0])
        raise CompilerError(f"the C compiler fails: {line[-200:]}")
    try:
        return read_bytes(made)
    except OSError as error:
        raise CompilerError(f"the C compiler made no library: {error.strerror}") from error


def _run(command: Sequence[str], messages: Path) -> int:
    """Run a command, its messages into a file; return its exit status. Raises OSError and TimeoutExpired."""
    with (
        messages.open("wb") as output,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,
        ) as process,
    ):
        try:
            return process.wait(_SECONDS)
        except BaseException:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)  # with the programs that the compiler runs
            raise
