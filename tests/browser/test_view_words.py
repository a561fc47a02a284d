"""The view alone, without gradio: what it says of tokens, guesses, a step, a broken and a whole run."""

from __future__ import annotations

import copy
import json
from collections import Counter

import pytest
from page_messages import step_messages
from places import drawn, says
from view_trace import make_trace

from medusa_core.trace.replay.colours import DARK, LIGHT, PHASES
from ui.records.messages import message_begin, message_broken, message_end, message_trace
from ui.runs.decode import UNTIMED

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
    left = "".join(f"; {n} more accepted, {why}" for why, n in Counter(cut[i] for i in sorted(cut)).items())
    kept = "".join(("abcd" * 3)[node] for node in (0, 1, 4, 7) if node not in cut)
    assert view.locator("[data-role=summary]").inner_text().endswith(f" kept: “{kept}”{left}")
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


def test_a_dead_branch_names_the_models_choice_and_each_p_is_printed_in_one_way(view, tell):
    """In a greedy run; node 6 follows node 2, which is rejected."""
    trace = make_trace(1, acceptance="match")
    step = trace["steps"][0]
    said = {"token_ids": [900, 901], "texts": [" owl", " fox"], "p": [1.0, 2e-6], "log_z": [], "entropy": []}
    step["after"] = [
        {**said, "node": 0, "token_ids": [step["nodes"][1]["token_id"], 901]},
        {**said, "node": 2},
    ]
    step["nodes"][1]["p"] = 0.999998
    tell(trace)
    shown = {}
    for node in (1, 6):
        view.locator(f'.mdv-node[data-node="{node}"]').click()
        view.wait_for_selector(f'.mdv-node.pinned[data-node="{node}"]')
        first = view.locator("[data-role=alternatives] tbody tr").first.locator("td").first
        shown[node] = view.locator("[data-role=why]").inner_text(), first.inner_text()
    assert "p = 0.999998." in shown[1][0]
    assert shown[1][1] == "0.999998"
    assert "its most likely token, and that was “␣owl” → rejected." in shown[6][0]
    assert shown[6][1] == ">.999"  # recorded as 1, though another token is possible
    tag = view.locator('.mdv-node[data-node="1"] .small').first.text_content()
    assert tag == "#1"  # “guess 1” has no room
    view.locator(".mdv-phase[data-phase=accept]").click()
    drawn(view)
    assert "1 of 11 guesses passes by itself;" in view.locator("[data-role=phase]").inner_text()


def test_the_cache_is_drawn_for_the_printer_even_where_it_was_out_of_sight(view, tell):
    view.set_viewport_size({"width": 760, "height": 300})
    tell(make_trace(2))
    assert view.locator(".mdv-kvpic").count() == 0
    view.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert view.locator(".mdv-kvpic").count() == 1


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


# --- Of a whole run: its overhead and speedup as an estimate, and equality of the text.


@pytest.fixture
def card_of(tell):
    """Call it with what is known beside a run: its card. Steps took 9 ms and made 2 tokens on average."""
    trace = make_trace()
    trace["output"]["tokens_per_step"] = 2.0
    for step in trace["steps"]:
        step["ms"] |= {"total": 9.0}

    def card(beside):
        messages = [message_begin("r", trace), *step_messages("r", trace), message_end("r", trace, beside)]
        found = tell(*messages).locator(".mdv-area-worth")
        found.wait_for(state="visible")
        return found

    return card


def test_the_estimate_is_tokens_per_step_over_overhead_and_says_that_it_is_one(card_of):
    faster = "The tree “auto”, here of 3 nodes, makes the most tokens per second"
    card = card_of({"timed_ms": [2.5, 4.0], "faster": faster})
    counts = {
        name: card.locator(f"[data-count={name}] b").inner_text()
        for name in ("worth-mean", "worth-overhead", "worth-speedup")
    }
    assert counts == {"worth-mean": "2.00", "worth-overhead": "÷ 1.60×", "worth-speedup": "≈ 1.25×"}
    words = card.locator("[data-role=worth]").inner_text()
    assert words.startswith("An estimate: 2.00 tokens a step ÷ overhead 1.60 ≈ 1.25 times")
    assert f"Side by side in Compare measures both with your prompt. {faster} " in words
    assert words.endswith(
        "In this run a step took 9.00 ms (median): it shared the processor with the drawing of this page."
    )


def test_nothing_is_estimated_where_no_step_was_timed(view, tell, card_of):
    card = card_of({"timed_ms": None})
    assert card.locator("[data-count=worth-speedup], [data-count=worth-overhead]").count() == 0
    assert "estimate: Side by side in Compare measures it" in card.locator("[data-role=worth]").inner_text()
    card_of({"timed_ms": None, "untimed": UNTIMED})
    view.wait_for_function(
        "(text) => document.querySelector('[data-role=worth]').innerText.endsWith(text)", arg=UNTIMED
    )
    tell(make_trace())
    says(view, "[data-role=worth]", "holds no time of a plain step")


SAME = {
    ("match", 0.0, "float32", False): "Yes, but for exact ties",
    ("match", 0.0, "bfloat16", True): "Yes: at temperature 0",
    ("typical", 0.0, "bfloat16", False): "Yes, but for near ties",
    ("typical", 0.7, "float32", True): "Not always",
    ("match", 0.7, "float32", True): "The same odds, not the same words",
    ("rejection", 0.7, "float32", True): "The same odds, not the same words",
    ("nucleus", 0.7, "float32", True): "No: tokens are drawn",
}


def test_equality_of_the_text_hangs_on_rule_temperature_and_rounding(view):
    said = view.evaluate(
        """(rows) => rows.map(([acceptance, temperature, dtype, exact]) =>
          samenessWords({ acceptance, temperature }, dtype, exact))""",
        [list(row) for row in SAME],
    )
    assert [words.startswith(begun) for words, begun in zip(said, SAME.values(), strict=True)] == [
        True
    ] * len(SAME)


def test_a_trace_says_whether_its_model_was_exact(tell):
    """Also one from a file, or of a saved page."""
    trace = make_trace()
    trace["model"]["dtype"], trace["config"]["temperature"] = "bfloat16", 0
    for exact, words in ((False, "Yes, but for near ties"), (True, "Yes: at temperature 0")):
        trace["model"]["exact"] = exact
        tell(trace).wait_for_selector(f"[data-role=sameness]:has-text('{words}')")


def test_the_share_dialog_lies_over_the_view_and_moves_nothing(view, tell):
    view.evaluate("mountShare(window.view)")
    tell(make_trace())
    view.locator(".mdv-grid").wait_for()
    before = view.locator(".mdv-grid").bounding_box()
    view.locator(".mdv-shareopen").click()
    assert view.locator(".mdv-share").evaluate("dialog => dialog.matches(':modal')")
    assert view.locator(".mdv-grid").bounding_box() == before
    assert view.locator(".mdv-viewhead .lecture-button").count() == 2
    view.keyboard.press("Escape")
    assert view.locator(".mdv-share").is_hidden()
    assert view.evaluate("document.activeElement.className") == "mdv-shareopen"
