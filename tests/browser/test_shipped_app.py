"""Watch as a newcomer starts it, with the embedded model and recordings: controls and picture agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from paths import ROOT
from places import says, unfold
from shipped_runs import recordings

pytestmark = pytest.mark.browser

TYPICAL = next(recording for recording in recordings() if recording.rule == "typical")
NOTES = """() => Object.fromEntries([...document.querySelectorAll("[data-note]")].map((part) =>
  [[...part.classList].find((name) => name.startsWith("setting-")).slice(8), part.dataset.note]))"""
SAME_NOTES = """(wanted) => {
  const seen = (NOTES)();
  for (const name in seen) if (seen[name].includes("no effect")) seen[name] = "nothing";
  const text = (notes) => JSON.stringify(Object.entries(notes).sort());
  return text(seen) === text(wanted);
}"""


@pytest.fixture(scope="module")
def address(shipped_address):
    return shipped_address


@pytest.fixture(scope="module")
def warm_page(address, open_warm_page):
    page = open_warm_page(address)
    page.wait_for_selector(".mdv-node")
    unfold(page)
    return page


def show(page, recording) -> None:
    page.get_by_label("Recorded runs").click()
    page.get_by_role("option", name=recording.name, exact=True).click()
    steps = recording.trace["steps"]
    # Trees of two recordings may be of one size, their numbers of steps are not.
    says(page, ".mdv", f"of {len(steps)}:")
    page.wait_for_selector(
        f".mdv-maskpic[aria-label^='{len(steps[0]['nodes'])} row']"
    )  # a large tree is folded
    if recording.rule != "typical":  # these open where ε and δ have something to show
        page.wait_for_selector(".mdv[data-step='0']")


def put(page, label: str, value: float) -> None:
    field = page.locator(f"#decode-settings input[type=number][aria-label*='{label}']").first
    field.fill(str(value))
    field.press("Tab")


def holds(page, **settings) -> None:
    """Wait until the controls hold these values."""
    for name, value in settings.items():
        block = f"#decode-settings .setting-{name} input[type=number]"
        page.wait_for_function(
            "([where, value]) => document.querySelector(where)?.value === value",
            arg=["#decode-prompt textarea" if name == "prompt" else block, str(value)],
        )


def noted(page, notes: dict[str, str]) -> None:
    """Wait until exactly these notes stand beside the controls; "nothing" for the long ones."""
    page.wait_for_function(SAME_NOTES.replace("NOTES", NOTES), arg=notes)


# The last one has the widest tree.
@pytest.mark.parametrize("which", [slice(-1, None), pytest.param(slice(None, -1), marks=pytest.mark.slow)])
def test_a_recording_can_be_explored_before_any_run(warm_page, which):
    page = warm_page
    for recording in recordings()[which]:
        show(page, recording)
        last = len(recording.trace["steps"]) - 1
        page.locator("[data-act=last]").click()
        page.wait_for_selector(f".mdv[data-step='{last}']")


def test_epsilon_and_delta_re_judge_the_recorded_step(warm_page):
    page = warm_page
    show(page, TYPICAL)
    page.wait_for_selector(".mdv-node.is-accepted")
    before = page.locator(".mdv-node.is-accepted").count()
    put(page, "ε", 1)
    put(page, "δ", 1)
    # With both at 1 the bar is exp(−H), which the recording's 0.09 and 0.3 never exceed.
    page.wait_for_selector(".mdv.is-hypothetical")
    assert page.locator(".mdv-node.is-accepted").count() <= before
    page.locator("[data-act=recorded]").click()
    page.wait_for_selector(".mdv:not(.is-hypothetical)")
    assert page.locator(".mdv-node.is-accepted").count() == before


def test_the_sliders_of_a_method_show_what_its_weights_bring(warm_page):
    page = warm_page
    file = Path(ROOT) / "assets" / "model" / "drafters" / "draft_model" / "draft.json"
    brought = json.loads(file.read_text(encoding="utf-8"))["cpu"]
    usual = page.locator("#decode-settings .usual-settings textarea, #decode-settings .usual-settings input")
    known = "([field, name, value]) => JSON.parse(field.value).draft_model[name] === value"
    usual.first.wait_for(state="attached")
    for name, value in brought.items():  # until the model is loaded they are the drafter's defaults
        page.wait_for_function(known, arg=[usual.first.element_handle(), name, value])
    page.locator("#decode-settings .setting-method input").click()
    page.get_by_role("option", name="Draft model", exact=True).click()
    for name, value in brought.items():
        slider = page.locator(f"#decode-settings .setting-{name}")
        slider.wait_for(state="visible")
        assert slider.locator("input[type=number]").input_value() == str(value), name


@pytest.mark.slow
def test_a_recording_brings_its_settings_and_others_are_marked(warm_page):
    page, greedy = warm_page, recordings()[0]
    brought = ("prompt", "temperature", "epsilon", "seed", "max_new_tokens")
    show(page, TYPICAL)
    holds(page, **{name: TYPICAL.settings[name] for name in brought})
    noted(page, {})
    put(page, "ε", 0.9)
    page.wait_for_selector("#decode-view .mdv.is-hypothetical")
    noted(page, {})  # it is applied to what is shown
    page.locator("[data-act=recorded]").click()
    holds(page, epsilon=TYPICAL.settings["epsilon"])
    page.wait_for_selector("#decode-view .mdv:not(.is-hypothetical)")
    page.locator("#decode-prompt textarea").fill("bead")
    put(page, "Temperature", 0)
    put(page, "ε", 0.02)
    noted(page, {"prompt": "for the next run", "epsilon": "nothing", "delta": "nothing"})
    page.wait_for_selector("#decode-view .mdv.is-hypothetical")  # the step as temperature 0 would judge it
    assert "At temperature 0" in page.locator("#decode-view [data-role=whatif]").inner_text()
    show(page, greedy)
    holds(page, prompt=greedy.settings["prompt"], temperature=0, seed=greedy.settings["seed"])
    noted(page, {"epsilon": "nothing", "delta": "nothing"})
    put(page, "New tokens", 12)
    page.click("#decode-run")
    says(page, "#decode-status", "12 tokens in")
    noted(page, {"epsilon": "nothing", "delta": "nothing"})
    assert page.get_by_label("Recorded runs").input_value() == ""  # none of them is shown
