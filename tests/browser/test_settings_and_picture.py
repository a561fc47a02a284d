"""The whole page: controls and picture agree, a failed run ends the view, and a tree from Trees is named."""

from __future__ import annotations

import json

import pytest
import tiny
from places import says, unfold

from medusa_core.config import GenerationConfig, LoadConfig
from ui.runs.session import Session
from ui.tabs.layout import build_page, gradio_theme, page_css

pytestmark = pytest.mark.browser

PROMPTS = [{"kind": "Story", "prompts": [{"label": "a", "text": "fade"}]}]
RUNS = {
    "1-soft": ("abcda", {"acceptance": "typical", "temperature": 0.7, "epsilon": 0.05, "seed": 3}),
    "2-greedy": ("cabbage", {"acceptance": "match", "temperature": 0.0}),
}
NOTES = """() => Object.fromEntries([...document.querySelectorAll("[data-note]")].map((part) =>
  [[...part.classList].find((name) => name.startsWith("setting-")).slice(8), part.dataset.note]))"""
SAME_NOTES = """(wanted) => {
  const seen = (NOTES)();
  for (const name in seen) if (seen[name].includes("no effect")) seen[name] = "nothing";
  const text = (notes) => JSON.stringify(Object.entries(notes).sort());
  return text(seen) === text(wanted);
}"""
NEXT = "for the next run"


@pytest.fixture(scope="module")
def address(engine, engine_folder, tmp_path_factory, serve):
    """The page around the tiny model, with two recorded runs."""
    assets = tmp_path_factory.mktemp("assets")
    (assets / "prompts.json").write_text(json.dumps(PROMPTS), "utf-8")
    (assets / "traces").mkdir()
    for name, (prompt, settings) in RUNS.items():
        config = GenerationConfig.of(max_new_tokens=12, tree="cartesian-4x2x2", **settings)
        trace = tiny.recorded(engine, config, engine.encode(prompt)).finish()
        (assets / "traces" / f"{name}.json").write_text(json.dumps(trace), "utf-8")
    page = build_page(Session(LoadConfig(str(engine_folder), dtype="float32", device="cpu"), assets))
    return serve(page, theme=gradio_theme(), css=page_css(), footer_links=[], run_history=False)


@pytest.fixture
def page(address, open_page):
    page = open_page(address)
    page.wait_for_selector("#decode-view .mdv-node")
    unfold(page)
    return page


def number(page, label: str):
    return page.locator(f"#decode-settings input[type=number][aria-label*='{label}']").first


def put(page, label: str, value: float) -> None:
    number(page, label).fill(str(value))
    number(page, label).press("Tab")


def holds(page, **settings) -> None:
    """Wait until the controls hold these values."""
    for name, value in settings.items():
        block = (
            f"#decode-settings .setting-{name} input[type=number]"
            if name != "prompt"
            else "#decode-prompt textarea"
        )
        page.wait_for_function(
            "([where, value]) => document.querySelector(where)?.value === value", arg=[block, str(value)]
        )


def noted(page, notes: dict[str, str]) -> None:
    """Wait until exactly these notes stand beside the controls; "nothing" for the long ones."""
    page.wait_for_function(
        SAME_NOTES.replace("NOTES", NOTES),
        arg=notes,
    )


@pytest.mark.slow
def test_a_recording_brings_its_settings_and_others_are_marked(page):
    holds(page, prompt="abcda", temperature=0.7, epsilon=0.05, seed=3, max_new_tokens=12)
    noted(page, {})
    put(page, "ε", 0.9)
    page.wait_for_selector("#decode-view .mdv.is-hypothetical")
    noted(page, {})  # it is applied to what is shown
    page.locator("[data-act=recorded]").click()
    holds(page, epsilon=0.05)
    page.wait_for_selector("#decode-view .mdv:not(.is-hypothetical)")
    page.locator("#decode-prompt textarea").fill("bead")
    put(page, "Temperature", 0)
    put(page, "ε", 0.02)
    noted(page, {"prompt": NEXT, "epsilon": "nothing", "delta": "nothing"})
    page.wait_for_selector("#decode-view .mdv.is-hypothetical")  # the step as temperature 0 would judge it
    assert "At temperature 0" in page.locator("#decode-view [data-role=whatif]").inner_text()
    page.get_by_label("Recorded runs").click()
    page.get_by_role("option", name="Greedy", exact=True).click()
    holds(page, prompt="cabbage", temperature=0, seed=0)
    noted(page, {"epsilon": "nothing", "delta": "nothing"})
    page.click("#decode-run")
    says(page, "#decode-status", "12 tokens in")
    noted(page, {"epsilon": "nothing", "delta": "nothing"})
    assert page.get_by_label("Recorded runs").input_value() == ""  # none of them is shown


@pytest.mark.slow
def test_a_prompt_that_is_too_long_ends_the_view_and_is_never_cut(page):
    page.locator("#decode-prompt textarea").fill("a" * 200)  # beyond the context
    page.click("#decode-run")
    page.wait_for_selector("#decode-view [data-role=failure]:not([hidden])")
    words = page.locator("#decode-view [data-role=failure]").inner_text()
    assert "The prompt has 200 tokens, the context holds 96" in words
    assert page.locator("#decode-view .is-live").count() == 0
    assert "Waiting" not in page.locator("#decode-view").inner_text()
    page.locator("#charts button").first.click()
    page.wait_for_function(
        "document.querySelector('#charts').textContent.includes('no finished run to draw')"
    )
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
