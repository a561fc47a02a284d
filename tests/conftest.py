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

KINDS = ("browser", "ui", "others")  # of files; each process begins with one
# Where in their order files stand that ask for a page as it is shipped, the tiny model's, another or none.
SHIPPED, OTHER, NO_PAGE, TINY = range(4)
PAGES = {"shipped_address": SHIPPED, "private_address": TINY, "serve": OTHER}


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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Hand files out by kind, so that few processes start a browser and each page.

    A process takes its own kind from the front and, when that is done, the others from the back: two that
    share the browser's files open different pages.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByKind(LoadFileScheduling):
        def _assign_work_unit(self, node):
            own = KINDS[int(node.gateway.id.removeprefix("gw")) % len(KINDS)]
            files = {kind: [scope for scope in self.workqueue if _kind(scope) == kind] for kind in KINDS}
            file = next(iter(files[own]), None) or next(files[kind][-1] for kind in KINDS if files[kind])
            self.workqueue.move_to_end(file, last=False)
            super()._assign_work_unit(node)

    return ByKind(config, log)


def _kind(path):
    return next((kind for kind in KINDS if path.startswith(f"tests/{kind}/")), KINDS[-1])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a table marked ``sample`` some rows run by default, and the others are slow; files are ordered."""
    places = _places(items)
    items.sort(key=lambda item: places[item.path])
    tables = {}
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("slow"):
            tables.setdefault((item.path, item.originalname), []).append(item)
    for rows in tables.values():
        chosen = _sampled(rows, *rows[0].get_closest_marker("sample").args)
        for row in rows:
            if row not in chosen:
                row.add_marker(pytest.mark.slow)


def _places(items):
    """The place of each file in the order, by the fixtures that its tests ask for."""
    asked = {}
    for item in items:
        asked.setdefault(item.path, set()).update(item.fixturenames)
    return {
        file: next((place for page, place in PAGES.items() if page in names), NO_PAGE)
        for file, names in asked.items()
    }


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
