"""The page as visitors of a Space see it: what is not there, what is offered, and how a refusal reads."""

from __future__ import annotations

import shutil

import pytest
from places import turn_to

from medusa_core.config import LoadConfig
from ui.launch import launch_options
from ui.layout import build_page
from ui.serving.policy import Exposure, Policy, policy_of
from ui.session import Session

pytestmark = pytest.mark.browser

PATIENCE = 60
TEXT_HAS = "([where, words]) => document.querySelector(where)?.innerText.includes(words)"
SPACE = {"SPACE_ID": "me/space"}


@pytest.fixture(scope="module")
def offered(engine_folder, tmp_path_factory):
    """A second model, which the owner of the Space lists."""
    return shutil.copytree(engine_folder, tmp_path_factory.mktemp("models") / "second")


@pytest.fixture(scope="module")
def public(serve, engine_folder, offered):
    """A public page with one model on offer: its address and its session."""
    return open_to_all(serve, LoadConfig(str(engine_folder), dtype="float32", device="cpu"), [str(offered)])


def open_to_all(serve, load, offers=()):
    policy = policy_of(SPACE, offers=offers)
    session = Session(load, policy=policy)
    page = build_page(session)
    options = launch_options(page, policy, Exposure(None, share=False, hosted=True))
    fixed = ("server_name", "server_port", "ssr_mode")
    return serve(page, **{name: value for name, value in options.items() if name not in fixed}), session


def says(page, where, words):
    page.wait_for_function(TEXT_HAS, arg=[where, words])


def write(page, tab, text="abc"):
    page.locator(f"#{tab}-prompt textarea").fill(text)


def test_a_visitor_finds_no_training_and_no_field_for_a_models_name(public, open_page):
    page = open_page(public[0])
    page.wait_for_selector("#decode-view .mdv")
    turn_to(page, "Trees")
    tabs = page.get_by_role("tab").all_inner_texts()
    assert "Watch" in tabs
    assert "Train" not in tabs
    hidden = "#model-name, #model-heads, #model-dtype, #model-quantize, #model-capture, #model-check"
    assert page.locator(hidden).count() == 0
    footer = page.locator("footer a:visible, footer button:visible").all_inner_texts()
    assert [words.strip() for words in footer] == ["Use via API"]


@pytest.mark.slow
def test_without_a_list_there_is_nothing_to_choose(engine_folder):
    def picks(policy):
        page = build_page(Session(LoadConfig(str(engine_folder)), policy=policy))
        return "model-picker" in {getattr(block, "elem_id", None) for block in page.blocks.values()}

    assert picks(Policy())
    assert not picks(Policy(public=True, training=False))
