"""The app in a browser, around a tiny model that likes to say what looks like code: runs and controls."""

from __future__ import annotations

import time

import pytest
from hostile import HOSTILE, PROMPTS
from places import says, set_tokens, turn_to, unfold
from playwright.sync_api import expect
from served import wait_until

from medusa_core.config import GenerationConfig
from medusa_core.drafters import drafter_names
from ui.components.controls import FIELDS
from ui.components.lane_controls import SAME
from ui.records.settings import LONGEST_RUN, MOST_TOKENS

pytestmark = pytest.mark.browser

PLAIN_WINDOW = str(GenerationConfig.penalty_window)
VIEW = "#decode-view .mdv:not(.is-empty)"
SETTINGS = "#decode-settings"
NOTES = """(fold) => Object.fromEntries([...document.querySelectorAll(fold + " [data-note]")].map((part) =>
  [[...part.classList].find((name) => name.startsWith("setting-")).slice(8), part.dataset.note]))"""


def ready(page):
    page.wait_for_selector(VIEW)
    unfold(page)
    return page


@pytest.fixture(scope="module")
def opened(address, open_warm_page):
    return ready(open_warm_page(address))


@pytest.fixture
def page(opened):
    """One page for all tests, each of which sets the controls that it needs."""
    opened.emulate_media(reduced_motion="no-preference")
    turn_to(opened, "Watch")
    if opened.locator(f"{SETTINGS} .setting-method input").input_value() != "Medusa heads":
        choose(opened, "method", "Medusa heads")
    return opened


def write_prompt(page, tab: str, text: str) -> None:
    page.locator(f"#{tab}-prompt textarea").fill(text)


def set_number(page, block: str, label: str, value: float) -> None:
    field = page.locator(f"{block} input[type=number][aria-label*='{label}']").first
    field.fill(str(value))
    field.press("Tab")


def choose(page, setting: str, entry: str) -> None:
    page.locator(f"{SETTINGS} .setting-{setting} input").click()
    page.get_by_role("option", name=entry, exact=True).click()


def unfold_race(page, fold: str) -> None:
    if not page.locator(f"{fold} [class*=setting-]").first.is_visible():
        page.locator(f"{fold} button").first.click()


def seconds_until_idle(session) -> float:
    started = time.perf_counter()
    while session.busy and time.perf_counter() - started < 10:
        time.sleep(0.01)
    return time.perf_counter() - started


def test_an_example_fills_the_prompt_unchanged(page):
    box = page.locator("#decode-prompt textarea")
    box.fill("")  # it starts with the first example, so that one click runs
    page.get_by_role("button", name="Story: a fox", exact=True).click()
    page.wait_for_function("document.querySelector('#decode-prompt textarea').value !== ''")
    assert box.input_value() == PROMPTS[0]["prompts"][0]["text"]


def test_an_example_brings_the_penalty_of_its_kind_of_text(page):
    block = page.locator(SETTINGS)
    block.get_by_text("Penalty and truncation").click()
    fields = [block.locator(f".setting-{name} input[type=number]") for name in ("penalty", "penalty_window")]
    for example, values in (("Story: a fox", ["1.2", "64"]), ("Booking: a table", ["1", PLAIN_WINDOW])):
        page.get_by_role("button", name=example, exact=True).click()
        for field, value in zip(fields, values, strict=True):
            expect(field).to_have_value(value)


def test_run_streams_to_the_end_and_shows_markup_as_text(page):
    write_prompt(page, "decode", "a fox went home")
    set_tokens(page, 40)
    page.click("#decode-run")
    says(page, "#decode-status", "40 tokens in")
    shown = page.locator("#decode-view").inner_text()
    assert "recorded run" not in shown
    assert any(piece in page.locator("#decode-view").text_content() for piece in HOSTILE)
    assert page.locator("#decode-view script, #decode-view img").count() == 0
    assert page.title() != "broken"


def test_an_empty_prompt_gets_a_hint_and_the_app_goes_on(page):
    page.locator("#decode-prompt textarea").fill("")
    page.click("#decode-run")
    says(page, "#decode-status", "The prompt is empty")
    write_prompt(page, "decode", "a fox")
    set_tokens(page, 8)
    page.locator("#decode-run").dispatch_event("click")  # a plain click waits until the notice is gone
    says(page, "#decode-status", "8 tokens in")


@pytest.mark.slow
def test_a_prompt_that_is_too_long_ends_the_view_and_is_never_cut(page):
    write_prompt(page, "decode", "a " * 3000)
    page.click("#decode-run")
    page.wait_for_selector("#decode-view [data-role=failure]:not([hidden])")
    says(page, "#decode-view [data-role=failure]", "The prompt has 3000 tokens, the context holds 2048")
    assert page.locator("#decode-view .is-live").count() == 0
    assert "Waiting" not in page.locator("#decode-view").inner_text()
    box = page.locator("#decode-prompt textarea")
    box.fill("")
    box.evaluate("(box) => box.focus()")
    page.keyboard.insert_text("b" * 8412)  # as a paste: a maxlength would cut it
    page.wait_for_selector("#decode-prompt[data-too-long]")
    assert len(box.input_value()) == 8412
    assert page.locator("#decode-prompt").get_attribute("data-too-long").startswith("8,412 characters: ")
    page.click("#decode-run")
    says(page, "#decode-status", "8412 characters")
    assert page.locator("#decode-view [data-role=failure]").is_hidden()


@pytest.mark.usefixtures("unhurried")
def test_closing_the_page_ends_the_computation_soon(address, open_page, session):
    page = ready(open_page(address))
    write_prompt(page, "decode", "a fox went home")
    set_tokens(page, 512)
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
def test_stop_has_a_way_of_its_own_and_ends_the_run_that_streams(page):
    asked = []

    def note(request):
        asked.append(request.url)

    says(page, "#model-line", "Medusa heads")
    write_prompt(page, "decode", "a fox went home")
    set_tokens(page, 512)
    page.on("request", note)
    stop_once_it_runs(page)
    says(page, "#decode-status", "tokens in")
    assert "stopped" in page.locator("#decode-status").inner_text()
    page.remove_listener("request", note)
    assert any(url.endswith("/medusa/stop") for url in asked)
    assert sum("/gradio_api/run" in url for url in asked) == 1  # one request for the run, none for Stop
    page.wait_for_function("!document.querySelector('#decode-view').innerText.includes('decoding now')")
    # The next run is not stopped by the click before it.
    set_tokens(page, 20)
    page.locator("#decode-run").click()
    says(page, "#decode-status", "the token budget is used up")


@pytest.mark.slow
def test_a_recorded_run_takes_the_figures_of_a_run_before_away(page):
    write_prompt(page, "decode", "a fox")
    page.click("#decode-run")
    says(page, "#decode-status", "tokens/s")
    page.locator("#recorded input").click()
    page.get_by_role("listbox").get_by_role("option").first.click()
    page.wait_for_selector("#decode-view .mdv-badges :text('recorded run')")
    page.wait_for_function("() => !document.querySelector('#decode-status p').textContent")


def test_moving_epsilon_judges_the_shown_step_again(page, session):
    set_number(page, SETTINGS, "ε", 0.9)
    page.wait_for_selector("#decode-view .mdv.is-hypothetical")
    assert not session.busy


def test_side_by_side_measures_and_replays(page, session):
    page.emulate_media(reduced_motion="reduce")
    turn_to(page, "Side by side")
    write_prompt(page, "race", "a fox went home")
    unfold_race(page, "#race-settings")
    set_number(page, "#race-settings", "New tokens", 30)
    page.click("#race-run")
    page.wait_for_selector(".race-player")
    assert "Identical output, token for token." in page.locator(".race-verdict").inner_text()
    assert page.locator(".race-lane").count() == 2
    assert any(piece in page.locator(".race-view").text_content() for piece in HOSTILE)
    assert page.locator(".race-view script, .race-view img").count() == 0
    assert page.title() != "broken"
    wait_until(lambda: not session.busy)
    # A refused comparison says why, and the lanes wait for the prompt beside them.
    unfold_race(page, "#race-second")
    temperature = page.locator("#race-second .setting-second-temperature :is(input, textarea)")
    temperature.fill("warm")
    page.click("#race-run")
    says(page, ".race-status", "Temperature of the second lane")
    says(page, ".race-stage", "About to start")
    temperature.fill("")


# --- The controls: methods, what does not count, and new tokens.


def wait_for_note(page, setting: str, words: str) -> None:
    page.wait_for_selector(f"{SETTINGS} .setting-{setting}[data-note*='{words}']")


def test_settings_that_do_not_count_with_the_method_say_so(page):
    page.locator(SETTINGS).get_by_label("typical").check()
    choose(page, "method", "N-grams of the text")
    wait_for_note(page, "tree", "counts for nothing with this method")
    said = page.locator(f"{SETTINGS} .setting-tree .setting-note").all_inner_texts()
    assert said == ["→ counts for nothing with this method"]  # text, which a screen reader reads
    wait_for_note(page, "heads", "count for nothing with this method")
    choose(page, "method", "Plain decoding")
    set_number(page, SETTINGS, "Temperature", 0.7)
    wait_for_note(page, "epsilon", "this method guesses nothing")
    wait_for_note(page, "delta", "this method guesses nothing")
    choose(page, "method", "Medusa heads")
    page.wait_for_selector(f"{SETTINGS} .setting-tree:not([data-note*='nothing'])")
    assert not any("this method" in note for note in page.evaluate(NOTES, SETTINGS).values())


def test_a_method_brings_its_own_defaults_and_words(page):
    """Settings of one name are one slider; choosing a method sets it to what is usual there."""
    slider = page.locator("#decode-settings .setting-draft_nodes")
    for method, nodes, words in (
        ("EAGLE-3 · no weights here", "59", "levels of drafted nodes"),
        ("N-grams of the text", "15", "tokens drafted after"),
    ):  # fmt: skip
        choose(page, "method", method)
        depth = page.locator("#decode-settings .setting-draft_depth")
        depth.get_by_text(words).wait_for()
        assert slider.locator("input[type=number]").input_value() == nodes


def test_both_menus_and_the_second_lanes_name_what_the_model_has_no_weights_for(page):
    """The menus are built before the model is loaded, so they are marked when it is."""
    entries = {}
    for menu in (
        "#decode-settings .setting-method",
        "#race-settings .setting-method",
        ".setting-second-method",
    ):
        if menu != "#decode-settings .setting-method":
            turn_to(page, "Side by side")
            unfold_race(page, "#race-settings" if "race" in menu else "#race-second")
        page.locator(f"{menu} input").click()
        page.locator(f"{menu} [role=option]", has_text="Hydra heads · no weights here").first.wait_for()
        entries[menu] = {
            text.strip("✓\n ") for text in page.locator(f"{menu} [role=option]").all_inner_texts()
        }
        page.keyboard.press("Escape")
    for menu, found in entries.items():
        assert {"Medusa heads", "N-grams of the text", "EAGLE-3 · no weights here"} <= found, menu
        assert len(found - {SAME}) == len(drafter_names()), menu


# --- The slider of new tokens on one's own page: far, dragged in round numbers, exact by box and keys.


SLIDER = "#decode-settings .setting-max_new_tokens"
DRAG = """([selector, value, held]) => {
  const range = document.querySelector(selector + " input[type=range]");
  if (held) range.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true }));
  else range.dispatchEvent(new KeyboardEvent("keydown", { bubbles: true, key: "ArrowRight" }));
  range.value = value;
  range.dispatchEvent(new Event("input", { bubbles: true }));
}"""


def test_it_goes_to_the_longest_run_in_sane_steps(page):
    box = page.locator(f"{SLIDER} input[type=number]")
    box.wait_for()
    most = min(LONGEST_RUN, FIELDS["max_new_tokens"].metadata["high"])
    assert page.locator(f"{SLIDER} input[type=range]").get_attribute("max") == str(most)
    assert most > MOST_TOKENS > GenerationConfig.max_new_tokens
    for value, held, shown in (
        (3217, True, "3200"),
        (3217, False, "3217"),
        (633, True, "650"),
        (7, True, "1"),
    ):
        page.evaluate(DRAG, [SLIDER, value, held])
        page.wait_for_function(f"document.querySelector('{SLIDER} input[type=number]').value === '{shown}'")
