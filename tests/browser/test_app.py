"""The app in a browser, around a tiny model that likes to say things that look like code."""

from __future__ import annotations

import json
import time

import pytest
import tiny
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from medusa_core import checkpoints
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.loading import load_engine
from medusa_core.trace import TraceBuilder
from ui.layout import build_page, page_css
from ui.session import Session
from ui.theme import gradio_theme

pytestmark = pytest.mark.browser

HOSTILE = ["<script>document.title='broken'</script>", "${1+1}", "{{value}}", "<img src=x onerror=alert(2)>"]
PROMPTS = [{"kind": "Story", "prompts": [{"label": "a fox", "text": 'a fox </script> said "go"\nand went'}]}]
VIEW = "#decode-view .mdv:not(.is-empty)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model with a long context, files as `load_engine` wants them; its words are partly markup."""
    path = tmp_path_factory.mktemp("hostile")
    model = tiny.build_model(tiny.tiny_config(2, max_position_embeddings=1024), seed=1)
    words = [*HOSTILE, *(f" {letter * 3}" for letter in tiny.LETTERS)][: tiny.VOCABULARY]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[5]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.Fuse()
    model.save_pretrained(path)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(path)
    heads = path / checkpoints.HEADS_FOLDER
    checkpoints.save_heads(tiny.fitted_heads(model), heads, "tiny")
    (heads / checkpoints.TREE_NAME).write_text(json.dumps([[0], [1], [0, 0], [0, 1], [0, 0, 0]]), "utf-8")
    return path


@pytest.fixture(scope="module")
def flags(folder):
    return LoadConfig(str(folder), dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def assets(flags, tmp_path_factory):
    """Example prompts and one recorded run, as they are shipped."""
    path = tmp_path_factory.mktemp("assets")
    (path / "prompts.json").write_text(json.dumps(PROMPTS), "utf-8")
    engine = load_engine(flags)
    config = GenerationConfig(acceptance="typical", temperature=0.7, max_new_tokens=24)
    builder = TraceBuilder(engine, config, [0, 7, 1])
    for step in engine.stream([0, 7, 1], config):
        builder.add(step)
    (path / "traces").mkdir()
    (path / "traces" / "1-hostile.json").write_text(json.dumps(builder.finish()), "utf-8")
    return path


@pytest.fixture(scope="module")
def session(flags, assets):
    return Session(flags, assets)


@pytest.fixture(scope="module")
def address(session, serve):
    return serve(
        build_page(session), theme=gradio_theme(), css=page_css(), footer_links=[], run_history=False
    )


@pytest.fixture
def decode_tab(address, open_page):
    page = open_page(address)
    page.wait_for_selector(VIEW)
    return page


def write_prompt(page, tab: str, text: str) -> None:
    page.locator(f"#{tab}-prompt textarea").fill(text)


def set_number(page, block: str, label: str, value: float) -> None:
    field = page.locator(f"{block} input[type=number][aria-label*='{label}']").first
    field.fill(str(value))
    field.press("Tab")


def wait_for_status(page, tab: str, words: str) -> None:
    page.wait_for_function(
        "([id, words]) => document.querySelector(id).innerText.includes(words)",
        arg=[f"#{tab}-status", words],
        timeout=90_000,
    )


def seconds_until_idle(session) -> float:
    started = time.perf_counter()
    while session.busy and time.perf_counter() - started < 10:
        time.sleep(0.01)
    return time.perf_counter() - started


def test_a_recorded_run_is_on_screen_before_any_run(decode_tab):
    page = decode_tab
    assert "recorded run" in page.locator("#decode-view").inner_text()
    page.wait_for_function(
        "document.querySelectorAll('.js-plotly-plot .main-svg').length >= 4", timeout=60_000
    )
    page.wait_for_function("document.querySelector('#model-line').innerText.includes('Medusa heads')")


def test_an_example_fills_the_prompt_unchanged(decode_tab):
    box = decode_tab.locator("#decode-prompt textarea")
    box.fill("")  # it starts with the first example, so that one click runs
    decode_tab.get_by_role("button", name="Story: a fox", exact=True).click()
    decode_tab.wait_for_function("document.querySelector('#decode-prompt textarea').value !== ''")
    assert box.input_value() == PROMPTS[0]["prompts"][0]["text"]


def test_run_streams_to_the_end_and_shows_markup_as_text(decode_tab):
    page = decode_tab
    write_prompt(page, "decode", "a fox went home")
    set_number(page, "#decode-settings", "New tokens", 40)
    page.click("#decode-run")
    wait_for_status(page, "decode", "40 tokens in")
    shown = page.locator("#decode-view").inner_text()
    assert "recorded run" not in shown
    assert any(piece in page.locator("#decode-view").text_content() for piece in HOSTILE)
    assert page.locator("#decode-view script, #decode-view img").count() == 0
    assert page.title() != "broken"


def test_an_empty_prompt_gets_a_hint_and_the_app_goes_on(decode_tab):
    decode_tab.locator("#decode-prompt textarea").fill("")
    decode_tab.click("#decode-run")
    wait_for_status(decode_tab, "decode", "The prompt is empty")
    write_prompt(decode_tab, "decode", "a fox")
    set_number(decode_tab, "#decode-settings", "New tokens", 8)
    decode_tab.click("#decode-run")
    wait_for_status(decode_tab, "decode", "8 tokens in")


def test_stop_ends_the_computation_within_a_second(decode_tab, session):
    page = decode_tab
    write_prompt(page, "decode", "a fox went home")
    set_number(page, "#decode-settings", "New tokens", 512)
    page.click("#decode-run")
    wait_for_status(page, "decode", "Step ")
    page.locator("#decode-stop").dispatch_event("click")  # a plain click waits for frames of a busy page
    assert seconds_until_idle(session) < 1
    wait_for_status(page, "decode", "stopped")
    assert "512 tokens" not in page.locator("#decode-status").inner_text()


def test_closing_the_page_ends_the_computation_within_a_second(decode_tab, session):
    page = decode_tab
    write_prompt(page, "decode", "a fox went home")
    set_number(page, "#decode-settings", "New tokens", 512)
    page.click("#decode-run")
    wait_for_status(page, "decode", "Step ")
    page.close()
    assert seconds_until_idle(session) < 1


def test_moving_epsilon_judges_the_shown_step_again(decode_tab, session):
    page = decode_tab
    set_number(page, "#decode-settings", "ε", 0.9)
    page.wait_for_selector("#decode-view .mdv.is-hypothetical")
    assert not session.busy


def test_two_visitors_see_their_own_runs(address, open_page):
    pages = [open_page(address), open_page(address)]
    for number, page in enumerate(pages):
        page.wait_for_selector(VIEW)
        write_prompt(page, "decode", "a fox")
        set_number(page, "#decode-settings", "New tokens", 150 + number)
    for page in pages:
        page.click("#decode-run")
    for number, page in enumerate(pages):
        wait_for_status(page, "decode", f"{150 + number} tokens in")


def test_side_by_side_measures_and_replays(address, open_page, session):
    page = open_page(address, reduced_motion="reduce")
    page.get_by_role("tab", name="Side by side").click()
    write_prompt(page, "race", "a fox went home")
    page.locator("#race-settings button").first.click()
    set_number(page, "#race-settings", "New tokens", 30)
    page.click("#race-run")
    page.wait_for_selector(".race-player", timeout=90_000)
    assert "Identical output, token for token." in page.locator(".race-verdict").inner_text()
    assert page.locator(".race-lane").count() == 2
    assert page.locator(".race-view script, .race-view img").count() == 0
    assert seconds_until_idle(session) < 1


def test_a_phone_needs_no_sideways_scrolling(address, open_page):
    page = open_page(address, width=390, height=844)
    page.wait_for_selector(VIEW)
    for name in ("Decode", "Side by side"):
        page.get_by_role("tab", name=name).click()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
