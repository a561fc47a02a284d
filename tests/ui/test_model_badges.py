"""What page and terminal say of the model: while it loads, where it cannot be loaded, and what it lacks."""

from __future__ import annotations

import threading
from dataclasses import replace

import gradio
import httpx
import pytest
from launching import free_port
from page_runs import SETTINGS

from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.loading.load import load_engine
from ui import launch
from ui.records.lanes import SecondLane
from ui.records.settings import DEFAULT, RunSettings, Selection, tree_choices
from ui.records.updates import StopFlag
from ui.runs.compare import CompareRequest
from ui.runs.session import Session
from ui.serving.models import Models, badge_of
from ui.serving.page import Page
from ui.serving.policy import Policy, policy_of
from ui.tabs.decode import _say_tree
from ui.tabs.model_bar import _line


def test_nothing_is_known_before_the_model_is_loaded_and_then_what_it_lacks(load):
    fresh = Session(load)
    assert fresh.methods_without_weights(Selection()) == frozenset()
    fresh.load()
    lacking = fresh.methods_without_weights(Selection())
    assert {"hydra", "eagle3", "draft_model", "hydra+ngram"} <= lacking
    assert not lacking & {"medusa", "medusa+ngram", "ngram", "none"}


def test_heads_of_the_visitors_own_count(session):
    session.load()
    engine = session.models.at_hand(Selection())
    bare = session.add_engine(engine)
    assert "medusa" not in session.methods_without_weights(Selection().with_engine(bare, "bare"))
    gone = Selection().with_engine("gone", "gone")
    assert "hydra" in session.methods_without_weights(gone)


@pytest.mark.parametrize(("first", "second"), [("medusa", "hydra"), ("hydra", "ngram")])
def test_a_lane_that_decodes_plainly_for_lack_of_weights_says_so_until_the_end(session, first, second):
    settings = RunSettings.of(**SETTINGS | {"max_new_tokens": 8, "method": first})
    request = CompareRequest("abcabc", settings, 1, SecondLane(method=second))
    updates = list(session.run(request, StopFlag()))
    assert not updates[-1].problem, updates[-1].status
    badges = [update.badge for update in updates if update.badge is not None]
    assert badges[-1].startswith("Hydra heads: this model has no weights for it")


# --- A context beyond the trained one in the page: its badge says so, and another model does not inherit it.


def test_the_badge_says_the_context_and_how_it_is_extended(load):
    assert "context" not in badge_of(load_engine(load))
    assert badge_of(load_engine(replace(load, context=500, extend="window"))).endswith(
        "context 500 in a window of 96, trained with 96"
    )


def test_another_model_has_its_own_context(load, tmp_path):
    models = Models(replace(load, context=500), Policy())
    assert models.wanted(LoadConfig(str(tmp_path), dtype="float32")).context == 0
    assert models.wanted(LoadConfig(load.model, heads="none", dtype="float32")).context == 500


# --- Heads of one's own are in the line above the tabs, and no menu calls their tree a shipped one.


def test_the_line_above_the_tabs_names_them(load):
    session = Session(load)
    own = Selection().with_engine("id", "medusa1, 5 minutes")
    assert _line(session.models.badge(own), own).endswith(
        " · your heads “medusa1, 5 minutes” in the Heads menu"
    )
    assert "your heads" not in _line(session.models.badge(Selection()), Selection())


def test_the_tree_menu_says_whose_tree_it_is_without_saying_shipped():
    labels = {name: label for label, name in tree_choices()}
    assert labels[DEFAULT] == "the heads’ own"


def test_a_tree_for_a_method_without_trees_is_said_to_count_for_nothing():
    own = Selection().with_tree([(0,), (1,)])
    words, _ = _say_tree(own, "ngram")
    assert "counts for nothing with the method “N-grams of the text”" in words
    assert "counts for nothing" not in _say_tree(own, "medusa")[0]
    assert _say_tree(Selection(), "ngram") == ("", "")


# --- The model begins to load when the server is up, before any browser has come, and does not hold it up.


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
    launch.start(flags(), LoadConfig())
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


# --- A model that cannot be loaded is told in the terminal as well, once, however many pages ask for it.


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


def test_a_first_page_that_takes_long_does_not_end_the_start(shipped_page, monkeypatch):
    """gradio's own look at the page gives up after three seconds; it is not made."""
    asked = []
    monkeypatch.setattr(gradio.networking, "url_ok", asked.append)
    page = shipped_page
    try:
        page.launch(server_port=free_port(), quiet=True, prevent_thread_lock=True, ssr_mode=False)
        assert page.is_running
    finally:
        page.close(verbose=False)
    assert asked == []
