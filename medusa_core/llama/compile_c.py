"""Compiles C for this machine and loads it; knows nothing of what the C does.

A compiled library is kept in a folder under a name that stands for the sources, the compiler, its flags and
the processor. It is compiled anew where one of them is another one.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from medusa_core.files import read_bytes
from medusa_core.llama.private_folder import MissingFunctionError, PrivateFolder

_log = logging.getLogger(__name__)
_COMPILERS = "cc", "gcc", "clang"
_SECONDS = 60.0  # compile timeout
_SOON = 2.0  # seconds within which compiling needs no line on the terminal


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
    header: str  # name of the header with the structures
    structures: Sequence[type[ctypes.Structure]]  # structures with the names of the header

    def stem(self, compiler: Sequence[str]) -> str:
        """The name of the library without the digest of its content."""
        texts = [self.layout_checks(), self.machine, *compiler, *self.flags]
        data = [*(path.read_bytes() for path in self.sources), *map(os.fsencode, texts)]
        return hashlib.sha256(b"\0".join(data)).hexdigest()[:24]

    def layout_checks(self) -> str:
        """C that compiles only where the header's structures are laid out as those of ctypes are."""
        lines = ["#include <stddef.h>", f'#include "{self.header}"']
        for structure in self.structures:
            name = structure.__name__
            size = ctypes.sizeof(structure)
            lines.append(f'_Static_assert(sizeof({name}) == {size}, "{name} has {size} bytes in Python");')
            for field, *_ in structure._fields_:
                place = getattr(structure, field)
                lines.append(
                    f"_Static_assert(offsetof({name}, {field}) == {place.offset} && "
                    f"sizeof((({name} *)0)->{field}) == {place.size}, "
                    f'"{name}.{field} lies elsewhere in Python");'
                )
        return "\n".join(lines) + "\n"


def open_library(recipe: Recipe, folder: Path) -> ctypes.CDLL:
    """The library from ``folder``, or compiled where it is not there or cannot be used.

    Where it cannot be kept there, it is compiled for this process alone. Raises NoLibraryError.
    """
    compiler = _compiler()
    stem, cache = recipe.stem(compiler), None
    with ExitStack() as stack:
        try:
            cache = stack.enter_context(PrivateFolder.at(folder))
            if found := _find(cache, stem, recipe.functions):
                return found
        except OSError as error:
            reason = error
        try:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            data = _compile(recipe, compiler, path)
            if cache is not None:
                try:
                    return cache.add(stem, data, recipe.functions)
                except OSError as error:  # it cannot be written to, or no programs may be run from it
                    reason = error
            library = stack.enter_context(PrivateFolder.at(path)).add(stem, data, recipe.functions)
        except OSError as error:
            raise CompilerError(f"what is compiled cannot be loaded: {_words(error)}") from error
        except MissingFunctionError as error:
            raise CompilerError(f"the C compiler makes another library: {error}") from error
    _log.warning(
        "Compiled %s for this process alone, since it cannot be kept in %s (%s): "
        "make it a folder of your own that others cannot write to, where programs may be run",
        recipe.title, folder, _words(reason),
    )  # fmt: skip
    return library


def _find(folder: PrivateFolder, stem: str, functions: Collection[str]) -> ctypes.CDLL | None:
    """The library that is kept; files under its name that cannot be used are removed."""
    for name in folder.names(stem):
        try:
            return folder.load(name, functions)
        except (OSError, MissingFunctionError) as error:
            _log.info("%s is compiled anew: %s", name, error)
            folder.remove(name)
    return None


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


def _compile(recipe: Recipe, compiler: Sequence[str], folder: Path) -> bytes:
    """What the compiler makes, in a ``folder`` for this alone. Raises CompilerError."""
    checks, made = folder / "layout_checks.c", folder / "library"
    checks.write_text(recipe.layout_checks(), encoding="utf-8")
    sources = [str(path) for path in (*recipe.sources, checks) if path.suffix == ".c"]
    includes = [f"-I{path}" for path in sorted({path.parent for path in recipe.sources})]
    command = [*compiler, *includes, *recipe.flags, *sources, "-o", str(made), "-lm"]
    try:
        status, errors = _run(command, f"Compiling {recipe.title} for this processor")
    except subprocess.TimeoutExpired as error:
        raise CompilerTimeoutError(f"the C compiler takes longer than {_SECONDS:g} seconds") from error
    except OSError as error:
        raise CompilerError(f"the C compiler cannot be run: {error}") from error
    if status:
        lines = errors.strip().splitlines() or ["without a word"]
        line = next((line for line in lines if "error" in line), lines[0])
        raise CompilerError(f"the C compiler fails: {line[-200:]}")
    try:
        return read_bytes(made)
    except OSError as error:
        raise CompilerError(f"the C compiler made no library: {error.strerror}") from error


def _run(command: Sequence[str], line: str) -> tuple[int, str]:
    """Exit status and messages. Says ``line`` when it takes long. Raises OSError and TimeoutExpired."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            try:
                errors = process.communicate(timeout=min(_SOON, _SECONDS))[1]
            except subprocess.TimeoutExpired:
                _log.warning(line)
                errors = process.communicate(timeout=max(0, _SECONDS - _SOON))[1]
        except BaseException:
            # The compiler runs other programs, which hold its standard error open and would be waited for.
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, errors.decode("utf-8", "replace")
