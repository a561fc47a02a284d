"""The model begins to load when the server is up, before any browser has come, and does not hold it up."""

from __future__ import annotations

import threading

import httpx
import pytest

from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError
from ui import launch
from ui.serving.page import Page
from ui.serving.policy import policy_of
from ui.session import Session

PATIENCE = 60


@pytest.fixture
def loads(monkeypatch):
    """Each load of an app's own model, held until it may go on: (its threads, the event)."""
    begun, go_on = [], threading.Event()

    def load(config, **how):
        begun.append(threading.current_thread().name)
        assert go_on.wait(PATIENCE)
        raise MedusaError("there is no such model")

    monkeypatch.setattr("medusa_core.loading.load.load_engine", load)
    yield begun, go_on
    go_on.set()


@pytest.mark.parametrize("environment", [{}, {"SPACE_ID": "me/space"}], ids=["own machine", "public Space"])
def test_the_model_loads_without_a_browser_while_the_page_answers(loads, environment, monkeypatch):
    begun, go_on = loads
    seen = {}

    def block(page):  # where app.py would stay until it is stopped
        deadline = threading.Event()
        while not begun and not deadline.wait(0.02):
            pass
        seen["status"] = httpx.get(f"{page.local_url}config", timeout=PATIENCE).status_code
        seen["loads"] = list(begun)
        go_on.set()
        page.close(verbose=False)

    monkeypatch.setattr(Page, "block_thread", block)
    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    launch.start(flags())
    assert seen["status"] == 200
    assert len(seen["loads"]) == 1
    assert seen["loads"][0].startswith("engine")  # a second thread that computes would slow the runs down


def flags():
    import app

    return app.parse_flags(["--without-model"])  # its load fails here


def test_a_model_that_cannot_be_loaded_is_told_by_the_page(loads):
    _, go_on = loads
    go_on.set()
    session = Session(LoadConfig(), policy=policy_of({}))
    launch.load_behind_page(session).join(PATIENCE)
    assert session.load() == "not loaded: there is no such model"


def test_on_a_borrowed_gpu_nothing_is_loaded_behind_the_page(loads):
    begun, go_on = loads
    go_on.set()
    session = Session(LoadConfig(), policy=policy_of({}), gpu=lambda duration: lambda work: work)
    launch.load_behind_page(session).join(PATIENCE)
    assert begun == []
