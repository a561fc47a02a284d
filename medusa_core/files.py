"""Files named by the user, read only when they are regular files.

A named pipe makes its reader wait for a writer that may never come, a device such as /dev/zero never ends.
Both are refused as an ``OSError`` that says so, which every reader's own message then carries.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from medusa_core.errors import MedusaError, reason_of

_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)
# Names that folders of weights have whatever is in them: the folder around them says which model it is.
_TELLS_NOTHING = (
    "model",
    "models",
    "base",
    "heads",
    "weights",
    "checkpoint",
    "checkpoints",
    "final",
    "output",
)


def project_folder() -> Path:
    """The folder that holds ``assets``, ``ui`` and ``app.py``: the clone or, where the package is installed,
    a folder inside it, so that site-packages gets one name alone.
    """
    package = Path(__file__).resolve().parent
    inside = package / "_project"
    return inside if inside.is_dir() else package.parent


def folder_title(folder: Path) -> str:
    """A folder's title for others to read: its name, with that of its parent where the name tells nothing.

    The rest of the path is not shown.
    """
    around = folder.parent
    if folder.name.lower() in _TELLS_NOTHING and around.name and around != Path.home():
        return f"{around.name}/{folder.name}"
    return folder.name


def special_kind(path: str | Path) -> str | None:
    """What a path is instead of a file or a folder, in words; None where it is one of these or nothing."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # not there, or a name that no file can have: the reader says so
        return None
    return next((words for is_kind, words in _KINDS if is_kind(mode)), None)


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Put ``file`` into system errors while it is written: that of a full disk names no file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(file)
        raise


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """A path to write to, which becomes ``file`` when the block ends, and nothing when it fails.

    Readers and other processes that write the same see the old file or a whole one.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{file.name}-", dir=file.parent) as folder:
        new = Path(folder) / file.name
        yield new
        new.replace(file)


def require_file(path: Path) -> None:
    """Raise OSError for a pipe, a device or a socket."""
    if kind := special_kind(path):
        raise OSError(errno.EINVAL, f"It is {kind} and no file", str(path))


def open_file(path: Path) -> BufferedReader:
    """The file, opened for reading its bytes. Raises OSError, also for a pipe, a device or a socket."""
    require_file(path)
    return path.open("rb")


def read_bytes(path: Path) -> bytes:
    """The file's bytes. Raises OSError as ``open_file`` does."""
    with open_file(path) as stream:
        return stream.read()


def read_text(path: Path) -> str:
    """The file's text in UTF-8 with its line ends as they are, without the mark that some editors put first.

    Raises OSError, and ValueError for other bytes.
    """
    return read_bytes(path).decode("utf-8-sig")


def read_asset(file: Path, kind: type = dict) -> Any:
    """What a JSON file of the project holds: an object, or another ``kind``; JSON Lines give a list.

    Raises MedusaError for a damaged file, and for one that holds something else.
    """
    try:
        text, several = read_text(file), file.suffix == ".jsonl"
        found = [json.loads(part) for part in (text.splitlines() if several else [text])]
        if not all(isinstance(one, kind) for one in found):
            raise ValueError(f"it holds no {'object' if kind is dict else kind.__name__}")
        return found if several else found[0]
    except (OSError, ValueError, RecursionError) as error:
        raise damaged_asset(file, reason_of(error)) from error


def damaged_asset(file: Path, reason: str) -> MedusaError:
    """The error for a file of the project that is not as it was shipped."""
    return MedusaError(
        f"cannot read {file} ({reason}): restore it with git checkout, or install the project again"
    )


def refuse_special_files(folder: Path) -> None:
    """Raise MedusaError for a pipe, a device or a socket in a folder whose files libraries will open."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not (entry.is_file() or entry.is_dir()) and (kind := special_kind(entry.path)):
                raise MedusaError(f"{entry.path} is {kind} and no file: take it out of the folder")
