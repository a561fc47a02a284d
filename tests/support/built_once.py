"""Folders that are expensive to make and only read: built once a run, whichever worker needs them first."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def built_once(tmp_path_factory: pytest.TempPathFactory, name: str, build: Callable[[Path], None]) -> Path:
    """The folder ``name``, filled by ``build``; another worker waits until it is whole."""
    run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        run = run.parent  # every worker has a folder of its own inside the run's
    folder, whole = run / name, run / f"{name}.whole"
    with FileLock(run / f"{name}.lock"):
        if not whole.exists():
            folder.mkdir()
            build(folder)
            whole.touch()
    return folder
