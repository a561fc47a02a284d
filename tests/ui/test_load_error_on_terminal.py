"""A model that cannot be loaded is told in the terminal as well, once, however many pages ask for it."""

from __future__ import annotations

import threading

import gradio
import pytest
from launching import free_port

from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError
from ui import launch
from ui.layout import build_page
from ui.serving.policy import policy_of
from ui.session import Session


def test_the_terminal_has_a_line_of_the_error(capsys, tmp_path):
    session = Session(LoadConfig(str(tmp_path / "nosuch")), policy=policy_of({}))
    launch.load_behind_page(session).join(60)
    said = session.load()
    assert said.startswith("not loaded: ")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"error: the model is not loaded: {said.removeprefix('not loaded: ')}"]


class Kept:
    """A page as gradio keeps it up: until it is closed."""

    def __init__(self):
        self.closed = threading.Event()

    def close(self, verbose):
        self.closed.set()

    def block_thread(self):
        self.closed.wait(60)


def test_a_page_whose_model_cannot_be_loaded_is_closed_with_the_error():
    page = Kept()
    with pytest.raises(MedusaError, match=r"the model is not loaded: .*/no/such/folder.*--without-model"):
        launch.serve(page, Session(LoadConfig("/no/such/folder")))
    assert page.closed.is_set()


def test_it_stays_up_without_a_model_where_that_is_asked_for(capsys):
    page = Kept()

    def stop(session, on_error):
        on_error(MedusaError("there is no folder"))
        page.closed.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "load_behind_page", stop)
        launch.serve(page, Session(LoadConfig("/no/such/folder")), without_model=True)
    assert "error: the model is not loaded: there is no folder" in capsys.readouterr().err


def test_a_first_page_that_takes_long_does_not_end_the_start(monkeypatch):
    """gradio's own look at the page gives up after three seconds; it is not made."""
    asked = []
    monkeypatch.setattr(gradio.networking, "url_ok", asked.append)
    page = build_page(Session(LoadConfig()))
    try:
        page.launch(server_port=free_port(), quiet=True, prevent_thread_lock=True, ssr_mode=False)
        assert page.is_running
    finally:
        page.close(verbose=False)
    assert asked == []
