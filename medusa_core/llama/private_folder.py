"""A folder of compiled libraries that nobody else can have written, and the way to load one from it."""

from __future__ import annotations

import ctypes
import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")  # Linux
_MODE = stat.S_IRWXU


class MissingFunctionError(Exception):
    """A library lacks a function that it should have."""


class PrivateFolder:
    """An open folder, used by its descriptor alone: its path may lead elsewhere later."""

    def __init__(self, descriptor: int) -> None:
        """``descriptor`` is a folder's. Raises OSError where others may write to it."""
        _require_private(os.fstat(descriptor))
        self._descriptor = descriptor

    @classmethod
    @contextmanager
    def at(cls, path: Path) -> Iterator[PrivateFolder]:
        """Make the folder where there is none. Raises OSError, also where others may write to it."""
        path.mkdir(mode=_MODE, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK)
        try:
            yield cls(descriptor)
        finally:
            os.close(descriptor)

    def names(self, stem: str) -> list[str]:
        """What may be libraries called ``stem``."""
        return [name for name in os.listdir(self._descriptor) if name.startswith(f"{stem}-")]

    def load(self, name: str, functions: Collection[str]) -> ctypes.CDLL:
        """The library of that name, which must end in the digest of what is in it.

        Raises OSError where it is damaged or others may have written it, MissingFunctionError.
        """
        data = self._read(name)
        if not name.endswith(_ending(data)):
            raise OSError(f"{name} is damaged")
        return self._load(name, data, functions)

    def add(self, stem: str, data: bytes, functions: Collection[str]) -> ctypes.CDLL:
        """Keep ``data`` as a library called ``stem`` and load it; what cannot be loaded is not kept.

        Raises OSError, MissingFunctionError.
        """
        new = f"new-{secrets.token_hex(12)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            with open(os.open(new, flags, _MODE, dir_fd=self._descriptor), "wb") as file:
                file.write(data)
            library = self._load(new, data, functions)
            # Another process that compiles at this moment finds the whole file or none.
            os.replace(new, stem + _ending(data), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except BaseException:
            self.remove(new)
            raise
        return library

    def remove(self, name: str) -> None:
        """Remove a file, if that can be done."""
        with suppress(OSError):
            os.unlink(name, dir_fd=self._descriptor)

    def _read(self, name: str) -> bytes:
        """Raises OSError, also for a link and for what is no regular file, such as a pipe."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(name, flags, dir_fd=self._descriptor), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(f"{name} is no regular file")
            _require_private(status)
            return file.read()

    def _load(self, name: str, data: bytes, functions: Collection[str]) -> ctypes.CDLL:
        through = _DESCRIPTORS / str(self._descriptor) / name
        if through.exists():
            return _checked(ctypes.CDLL(str(through)), functions)
        # On macOS there is only the path, which may lead elsewhere by now: a copy that nobody else can reach.
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / name
            copy.write_bytes(data)
            return _checked(ctypes.CDLL(str(copy)), functions)


def _ending(data: bytes) -> str:
    """The end of a library's name. A damaged one, which may crash when it is loaded, has another digest."""
    return f"-{hashlib.sha256(data).hexdigest()[:24]}.so"


def _require_private(status: os.stat_result) -> None:
    """Raise OSError where somebody else than this user and root may write."""
    if status.st_uid not in {os.geteuid(), 0}:
        raise PermissionError(f"it belongs to user {status.st_uid}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError("other users may write to it")


def _checked(library: ctypes.CDLL, functions: Collection[str]) -> ctypes.CDLL:
    for name in functions:
        if not hasattr(library, name):
            raise MissingFunctionError(f"there is no function {name} in it")
    return library
