"""The app as a newcomer starts it: the embedded model, the shipped recordings, no flags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from paths import ROOT
from places import says, unfold
from shipped_runs import recordings

pytestmark = pytest.mark.browser


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
    show(page, next(recording for recording in recordings() if recording.rule == "typical"))
    page.wait_for_selector(".mdv-node.is-accepted")
    before = page.locator(".mdv-node.is-accepted").count()
    for name in ("ε", "δ"):
        field = page.locator(f"#decode-settings input[type=number][aria-label*='{name}']").first
        field.fill("1")
        field.press("Tab")
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
