"""The app in a browser, around a tiny model that likes to say things that look like code."""

from __future__ import annotations

import time

import pytest
from hostile import HOSTILE, PROMPTS
from places import says, turn_to, unfold
from playwright.sync_api import expect
from served import wait_until

from medusa_core.config import GenerationConfig

pytestmark = pytest.mark.browser

PLAIN_WINDOW = str(GenerationConfig.penalty_window)
VIEW = "#decode-view .mdv:not(.is-empty)"


@pytest.fixture(scope="module")
def decode_tab(address, open_warm_page):
    """One page for all tests that run something in it."""
    page = open_warm_page(address)
    page.wait_for_selector(VIEW)
    unfold(page)
    return page


@pytest.fixture
def new_page(address, open_page):
    page = open_page(address)
    page.wait_for_selector(VIEW)
    unfold(page)
    return page


def write_prompt(page, tab: str, text: str) -> None:
    page.locator(f"#{tab}-prompt textarea").fill(text)


def set_number(page, block: str, label: str, value: float) -> None:
    field = page.locator(f"{block} input[type=number][aria-label*='{label}']").first
    field.fill(str(value))
    field.press("Tab")


def seconds_until_idle(session) -> float:
    started = time.perf_counter()
    while session.busy and time.perf_counter() - started < 10:
        time.sleep(0.01)
    return time.perf_counter() - started


def test_an_example_fills_the_prompt_unchanged(decode_tab):
    box = decode_tab.locator("#decode-prompt textarea")
    box.fill("")  # it starts with the first example, so that one click runs
    decode_tab.get_by_role("button", name="Story: a fox", exact=True).click()
    decode_tab.wait_for_function("document.querySelector('#decode-prompt textarea').value !== ''")
    assert box.input_value() == PROMPTS[0]["prompts"][0]["text"]


def test_an_example_brings_the_penalty_of_its_kind_of_text(decode_tab):
    block = decode_tab.locator("#decode-settings")
    block.get_by_text("Penalty and truncation").click()
    fields = [block.locator(f".setting-{name} input[type=number]") for name in ("penalty", "penalty_window")]
    for example, values in (("Story: a fox", ["1.2", "64"]), ("Booking: a table", ["1", PLAIN_WINDOW])):
        decode_tab.get_by_role("button", name=example, exact=True).click()
        for field, value in zip(fields, values, strict=True):
            expect(field).to_have_value(value)


def test_run_streams_to_the_end_and_shows_markup_as_text(decode_tab):
    page = decode_tab
    write_prompt(page, "decode", "a fox went home")
    set_number(page, "#decode-settings", "New tokens", 40)
    page.click("#decode-run")
    says(page, "#decode-status", "40 tokens in")
    shown = page.locator("#decode-view").inner_text()
    assert "recorded run" not in shown
    assert any(piece in page.locator("#decode-view").text_content() for piece in HOSTILE)
    assert page.locator("#decode-view script, #decode-view img").count() == 0
    assert page.title() != "broken"


def test_an_empty_prompt_gets_a_hint_and_the_app_goes_on(decode_tab):
    decode_tab.locator("#decode-prompt textarea").fill("")
    decode_tab.click("#decode-run")
    says(decode_tab, "#decode-status", "The prompt is empty")
    write_prompt(decode_tab, "decode", "a fox")
    set_number(decode_tab, "#decode-settings", "New tokens", 8)
    decode_tab.locator("#decode-run").dispatch_event("click")  # a plain click waits until the notice is gone
    says(decode_tab, "#decode-status", "8 tokens in")


@pytest.mark.usefixtures("unhurried")
def test_closing_the_page_ends_the_computation_soon(new_page, session):
    page = new_page
    write_prompt(page, "decode", "a fox went home")
    set_number(page, "#decode-settings", "New tokens", 512)
    page.click("#decode-run")
    started = time.perf_counter()
    while not session.busy and time.perf_counter() - started < 60:
        page.wait_for_timeout(10)
    assert session.busy
    page.close()
    assert seconds_until_idle(session) < 10  # of about twenty


def stop_once_it_runs(page):
    """Click Stop as soon as some steps are drawn; on a busy machine a run may be over before a mouse is."""
    page.locator("#decode-run").click()
    page.wait_for_function(
        """() => {
          const running = Number(document.querySelector("#decode-view .mdv").dataset.step) > 3;
          if (running) document.querySelector("#decode-stop").click();
          return running;
        }"""
    )


@pytest.mark.usefixtures("unhurried")
def test_stop_has_a_way_of_its_own_and_ends_the_run_that_streams(decode_tab):
    page, asked = decode_tab, []

    def note(request):
        asked.append(request.url)

    says(page, "#model-line", "Medusa heads")
    write_prompt(page, "decode", "a fox went home")
    set_number(page, "#decode-settings", "New tokens", 512)
    page.on("request", note)
    stop_once_it_runs(page)
    says(page, "#decode-status", "tokens in")
    assert "stopped" in page.locator("#decode-status").inner_text()
    page.remove_listener("request", note)
    assert any(url.endswith("/medusa/stop") for url in asked)
    assert sum("/gradio_api/run" in url for url in asked) == 1  # one request for the run, none for Stop
    page.wait_for_function("!document.querySelector('#decode-view').innerText.includes('decoding now')")
    # The next run is not stopped by the click before it.
    set_number(page, "#decode-settings", "New tokens", 20)
    page.locator("#decode-run").click()
    says(page, "#decode-status", "the token budget is used up")


def test_moving_epsilon_judges_the_shown_step_again(decode_tab, session):
    page = decode_tab
    set_number(page, "#decode-settings", "ε", 0.9)
    page.wait_for_selector("#decode-view .mdv.is-hypothetical")
    assert not session.busy


def test_side_by_side_measures_and_replays(decode_tab, session):
    page = decode_tab
    page.emulate_media(reduced_motion="reduce")
    turn_to(page, "Side by side")
    write_prompt(page, "race", "a fox went home")
    page.locator("#race-settings button").first.click()
    set_number(page, "#race-settings", "New tokens", 30)
    page.click("#race-run")
    page.wait_for_selector(".race-player")
    assert "Identical output, token for token." in page.locator(".race-verdict").inner_text()
    assert page.locator(".race-lane").count() == 2
    assert any(piece in page.locator(".race-view").text_content() for piece in HOSTILE)
    assert page.locator(".race-view script, .race-view img").count() == 0
    assert page.title() != "broken"
    wait_until(lambda: not session.busy)
