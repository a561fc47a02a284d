"""What must be set before any test is imported, which rows of tables run, and in which order."""

from __future__ import annotations

import faulthandler
import gc
import os
import tempfile
import threading
from collections import Counter
from pathlib import Path

# Before any import of the libraries that read them: no test may reach the network, and products of tiny
# matrices take far longer when several threads share them than on one.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["OMP_NUM_THREADS"] = "1"
# Tests start many processes that import the project; none of them should compile it again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A tree chosen by the machine's speed would make runs differ; tests of that choice allow it themselves.
os.environ["MEDUSA_MEASURE"] = "0"

# Importing torch, transformers and gradio makes a million objects that stay, and the collector would go
# through them again and again meanwhile. It is turned on when all tests are imported (pytest_collection).
gc.disable()

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_pause_for_drawing():
    """Measurements wait until a reader's browser has drawn; no test asserts a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ui.runs.other_work.DRAWING_SECONDS", 0)
        yield


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    """A worker that crashes leaves its stack in a file, which is added to the report of its test.

    On the terminal the names of all extension modules would follow it and fill the end of the log.
    """
    if hasattr(config, "workerinput"):
        faulthandler.enable(_stack_file(config.workerinput).open("w"), all_threads=False)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(report):
    file = _stack_file(report.node.workerinput)
    report.sections.append(("Stack of the crash", file.read_text().partition("Extension modules")[0]))
    file.unlink()


def pytest_unconfigure(config):
    if hasattr(config, "workerinput"):
        _stack_file(config.workerinput).unlink()


def _stack_file(worker):
    return Path(tempfile.gettempdir(), f"{worker['testrunuid']}-{worker['workerid']}")


def pytest_sessionstart(session):
    """The process that only starts the workers does not import torch first.

    The C is compiled once, there, while the workers import, and not by each of them at the same time.
    """
    plugins = session.config.pluginmanager
    if plugins.hasplugin("dsession"):
        threading.Thread(target=_compile).start()
    else:
        plugins.import_plugin("engine_fixtures")


def _compile():
    from medusa_core.loading.devices import native_library

    native_library()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a table marked ``sample`` some rows run by default, and the others are slow; files are mixed."""
    items[:] = _mixed(items)
    tables = {}
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("slow"):
            tables.setdefault((item.path, item.originalname), []).append(item)
    for rows in tables.values():
        chosen = _sampled(rows, *rows[0].get_closest_marker("sample").args)
        for row in rows:
            if row not in chosen:
                row.add_marker(pytest.mark.slow)


def _mixed(items):
    """The browser's files spread among the others, so that some workers compute while others wait for a page.

    They are through before the others, since a long one at the end would keep one worker alone.
    """
    files, places = {}, {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    kinds = {path: rows[0].get_closest_marker("browser") is not None for path, rows in files.items()}
    for browser, until in ((True, 0.8), (False, 1.0)):
        paths = [path for path, kind in kinds.items() if kind == browser]
        places |= {path: until * number / len(paths) for number, path in enumerate(paths)}
    return [item for path in sorted(files, key=places.get) for item in files[path]]


def _sampled(rows, most=None):
    """``most`` rows of a table, spread over its columns; without a number, each value of each column once."""
    if most is not None:
        # Multiples of the golden ratio: a fixed step could always meet the same value of an inner column.
        return sorted(rows, key=lambda row: rows.index(row) * 0.618034 % 1)[:most]
    values = {row: {(name, repr(value)) for name, value in row.callspec.params.items()} for row in rows}
    chosen, lacking, used = [], set.union(*values.values()), Counter()
    while lacking:
        # Of the rows with equally many missing values, the one whose values were used least.
        chosen.append(
            max(rows, key=lambda row: (len(values[row] & lacking), -sum(used[one] for one in values[row])))
        )
        lacking -= values[chosen[-1]]
        used.update(values[chosen[-1]])
    return chosen


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """From here on a collection looks at what tests make, not at the libraries' objects each time."""
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """What a file leaves alive, libraries and models for all tests, is not scanned again either."""
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:
            gc.collect()
            gc.freeze()
