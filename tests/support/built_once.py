"""Folders that are expensive to make and only read: built once per run, by the first worker to need them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that all workers of this run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def built_once(tmp_path_factory: pytest.TempPathFactory, name: str, build: Callable[[Path], None]) -> Path:
    """The folder ``name``, filled by ``build``; another worker waits until it is whole."""
    run = run_folder(tmp_path_factory)
    folder, whole = run / name, run / f"{name}.whole"
    with FileLock(run / f"{name}.lock"):
        if not whole.exists():
            folder.mkdir()
            build(folder)
            whole.touch()
    return folder
