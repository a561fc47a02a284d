"""The view alone, without gradio: what it says of cut tokens, guesses, one step and runs that broke off."""

from __future__ import annotations

import copy
import json

import pytest
from page_messages import step_messages
from places import drawn
from view_trace import make_trace

from medusa_core.trace.replay.colours import DARK, LIGHT, PHASES
from ui.records.messages import message_begin, message_broken, message_end, message_trace

pytestmark = pytest.mark.browser

SENTENCE = "the prompt has 9 tokens, the context holds 8: shorten the prompt"


def goto_last(page) -> None:
    page.locator("[data-act=last]").click()
    drawn(page)


def ended(reason: str, kept: int) -> dict:
    """A run whose last step accepted four tokens and kept `kept` of them, for this reason."""
    trace = copy.deepcopy(make_trace(3))
    step = trace["steps"][-1]
    for node, text in zip(step["nodes"], ["a", "b", "c", "d"] * 3, strict=True):
        node["text"] = text
        node["accepted"] = node["passes"] = node["id"] in (0, 1, 4, 7)
    step |= {"path": [0, 1, 4, 7], "bonus": None}
    step["emitted"] = [step["nodes"][i]["token_id"] for i in step["path"][:kept]]
    nodes = [each["nodes"][i] for each in trace["steps"] for i in each["path"][: len(each["emitted"])]]
    text = "".join(node["text"] for node in nodes)
    trace["output"] |= {"finish_reason": reason, "text": text[: len(text) - (reason in ("eos", "stop"))]}
    return trace


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("reason", "cut"),
    [
        ("length", {4: "cut by the token budget", 7: "cut by the token budget"}),
        ("context", {4: "cut, as the context is full", 7: "cut, as the context is full"}),
        ("eos", {1: "the end-of-text token, not part of the text", 4: "after the end of the text",
                 7: "after the end of the text"}),
        ("stop", {1: "part of the stop string", 4: "after the stop string", 7: "after the stop string"}),
    ],
)  # fmt: skip
def test_accepted_tokens_that_are_not_in_the_text_are_shown_as_cut(view, tell, reason, cut):
    tell(ended(reason, kept=2))
    goto_last(view)
    for node in (1, 4, 7):
        label = view.locator(f'.mdv-node[data-node="{node}"]').get_attribute("aria-label")
        shown = "accepted, " + cut[node] if node in cut else "accepted"
        assert label.endswith(", " + shown)
    assert view.locator(".mdv-node.is-cut").count() == len(cut)
    assert cut[7] in view.locator("[data-role=summary]").inner_text()
    view.locator('.mdv-node[data-node="7"]').click()
    view.wait_for_selector('.mdv-node.pinned[data-node="7"]')
    assert view.locator("[data-role=verdict]").inner_text() == "accepted, " + cut[7]
    assert view.locator("[data-role=why]").inner_text().endswith(f"It is not in the text: {cut[7]}.")
    assert view.locator(".mdv-strip .is-cut").count() == (1 in cut)


def test_a_run_that_was_kept_whole_has_no_cut_chips(view, tell):
    tell(make_trace(3))
    goto_last(view)
    assert view.locator(".mdv-node.is-cut, .mdv-strip .is-cut").count() == 0


def test_the_root_is_no_guess_and_one_is_not_plural(view, tell):
    trace = make_trace(1)
    step = trace["steps"][0]
    step["nodes"], step["path"], step["emitted"] = step["nodes"][:2], [0], step["emitted"][:1]
    step["nodes"][1] |= {"passes": False, "accepted": False}
    tell(trace)
    assert view.locator("[data-role=summary]").inner_text().startswith("Step 1 of 1: 1 guess, 1 token kept: ")
    assert view.locator("[data-count=steps]").inner_text().split() == ["1", "step"]
    assert view.locator("[data-count=tokens]").inner_text().split() == ["1", "token"]
    assert (
        view.locator(".mdv-maskpic").get_attribute("aria-label").startswith("2 rows: the root and 1 guess.")
    )
    tell(make_trace(2))
    assert view.locator("[data-role=summary]").inner_text().startswith("Step 1 of 2: 11 guesses, ")


def test_a_run_that_broke_off_before_its_first_step_ends_with_its_sentence(view, tell):
    trace = make_trace(4)
    tell(trace, message_begin("new", trace))
    assert view.locator(".mdv-badges .is-live").count() == 1
    assert "Waiting" in view.locator("[data-role=summary]").inner_text()
    tell(message_broken(SENTENCE))
    assert view.locator("[data-role=failure]").inner_text() == SENTENCE
    assert view.locator("[data-role=summary]").inner_text() == "No step was made."
    assert view.locator(".mdv-badges .is-live").count() == 0
    assert view.locator(".mdv-badges .is-failure").inner_text() == "not finished"
    assert view.evaluate("document.querySelector('.mdv-ticks').width") == 0  # the bars of the run before
    tell(trace)
    assert view.locator("[data-role=failure]").is_hidden()


def test_a_finished_run_does_not_change_when_a_later_one_is_refused(view, tell):
    trace = make_trace(2)
    steps = step_messages("r", trace)
    tell(message_begin("r", trace), *steps, message_end("r", trace))
    tell(message_broken(SENTENCE))
    assert view.locator("[data-role=failure]").is_hidden()
    assert view.locator(".mdv-node").count() > 0


@pytest.mark.parametrize("dark", [False, True])
def test_a_phase_has_the_colour_of_the_chart(view, tell, dark):
    view.evaluate("(dark) => document.body.classList.toggle('dark', dark)", dark)
    tell(make_trace(2))
    colours = dict(zip(PHASES, (DARK if dark else LIGHT).phases, strict=True))
    for phase in ("propose", "verify", "accept", "commit"):
        shown = view.evaluate(
            "(name) => getComputedStyle(document.querySelector('.mdv-stack .phase-' + name)).backgroundColor",
            phase,
        )
        assert shown == "rgb({}, {}, {})".format(*bytes.fromhex(colours[phase][1:]))


def test_restoring_tells_the_page_the_settings_of_the_run(view, tell):
    trace = make_trace(2)
    view.evaluate("""() => {
      window.told = [];
      for (const name of ["restore", "notes"]) {
        host.addEventListener(name, ({ detail }) => window.told.push([name, detail]));
      }
    }""")
    rule = trace["config"]["acceptance"]
    own = {"acceptance": rule["name"], "temperature": trace["config"]["temperature"], **rule["settings"]}
    tell(message_trace("r", trace, settings={"epsilon": own["epsilon"], "seed": 0}))
    wished = own | {"epsilon": 0.5, "seed": 3}
    view.evaluate("(detail) => host.dispatchEvent(new CustomEvent('settings', { detail }))", wished)
    view.wait_for_selector(".mdv.is-hypothetical")
    notes = [detail for name, detail in view.evaluate("window.told") if name == "notes"][-1]
    assert (notes["epsilon"], notes["seed"]) == ("", "for the next run")
    view.locator("[data-act=recorded]").click()
    view.wait_for_selector(".mdv:not(.is-hypothetical)")
    told = [detail for name, detail in view.evaluate("window.told") if name == "restore"]
    assert json.loads(json.dumps(told)) == [own]
