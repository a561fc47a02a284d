"""One process at a time in a run folder, by a lock of the operating system that ends with its process.

A file that says "in use" would stay behind when its process is killed. The lock belongs to the open file
instead, so the system drops it with the process, however that ends: flock where there is one, on Windows the
locking of a byte. Several processes of one training share the folder: only the first of them takes the lock.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

from medusa_core.errors import MedusaError
from medusa_core.files import naming

fcntl = import_module("fcntl") if find_spec("fcntl") else None  # Windows has none
LOCK_NAME = ".lock"
_TAKEN = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
_BYTE = 2**30  # position after the text: on Windows a locked byte cannot be read


@contextmanager
def locked_folder(folder: Path, way_out: str = "choose another --out") -> Iterator[None]:
    """Make the folder and hold its lock; at the end the lock goes, and the folder where nothing came into it.

    System errors without the name of a file get that of the folder.

    Raises MedusaError when another process holds it, or the lock is a link, which could lead anywhere, or a
    file of another program; or OSError.
    """
    if os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) != "0":  # accelerate's and torch's numbering
        yield
        return
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with naming(folder), _held(folder / LOCK_NAME, way_out):
            yield
    finally:
        with suppress(OSError):  # one that holds something stays
            for path in made:
                path.rmdir()


@contextmanager
def _held(path: Path, way_out: str) -> Iterator[None]:
    if path.is_symlink():
        raise MedusaError(f"{path} is a link, it would be written through: delete it")
    with open(path, "a+", encoding="utf-8", errors="replace") as file:
        _take(file, path, way_out)
        file.seek(0)
        if (text := file.read(20).strip()) and not text.isdecimal():
            raise MedusaError(f"{path} belongs to another program: {way_out}")
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            if fcntl is None:
                file.close()  # Windows removes no open file
            with suppress(OSError):
                path.unlink()


def _take(file: TextIO, path: Path, way_out: str) -> None:
    """Take the lock. Raises MedusaError where another process has it, or removed the file after its run."""
    try:
        _lock(file)
        taken = not (path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()))
    except OSError as error:
        taken = error.errno in _TAKEN
        if not taken:
            # Some network file systems have no locks, and training is possible there all the same.
            logging.getLogger(__name__).warning(
                "warning: %s cannot be locked (%s): start no second process in it",
                path.parent,
                error.strerror,
            )
    if taken:
        file.seek(0)
        number = file.read(20).strip()  # as the process that holds the lock wrote it down
        who = f" ({number})" if number.isdecimal() else ""
        raise MedusaError(f"another process{who} works in {path.parent}: wait for it, stop it, or {way_out}")


def _lock(file: TextIO) -> None:
    """Take the lock or raise OSError; closing the file gives it back."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    msvcrt = import_module("msvcrt")  # on Windows alone
    os.lseek(file.fileno(), _BYTE, os.SEEK_SET)
    msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
