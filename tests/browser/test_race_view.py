"""The side-by-side replay without gradio: figures, verdicts, words, keys and past races; text stays text."""

from __future__ import annotations

import json

import pytest
from hostile import HOSTILE
from places import says
from trace_factory import make_trace

from medusa_core.trace.replay.colours import drafter_palette
from medusa_core.trace.replay.view import methods_script, read_web
from ui.components.lane_controls import SAME
from ui.components.views import RACE_SCRIPTS, race_css
from ui.records.messages import lane, race_message, status_message
from ui.runs.other_work import busy_words

pytestmark = pytest.mark.browser

BUSY = {"cores": 4, "other_cores_busy": 2.5}
FINISHED = "[...document.querySelectorAll('.race-lane')].every((lane) => lane.classList.contains('finished'))"


def verdict(**changes):
    fields = {"equal": True, "index": None, "first": "", "second": "", "logit_gap": None, "comparable": True}
    return {**fields, "expected": "must", "note": "", **changes}


def runs_of(trace):
    """Speeds of three runs, the middle one that of the trace."""
    rate = trace["output"]["tokens_per_second"]
    return [rate * 0.98, rate, rate * 1.02]


def message(words=None, *, step_ms=11.0, **changes):
    ours, plain = make_trace(words, step_ms=step_ms), make_trace(words, heads=0, step_ms=9.0)
    both = [lane("Medusa", ours, runs_of(ours)), lane("Plain decoding", plain, runs_of(plain))]
    return race_message(both, verdict(**changes), baseline=1)


# The player as gradio mounts it; `tell` sets a new value, as the server's next message does.
MOUNT = """([script, value]) => {
  const props = { value };
  const watch = (name, changed) => {
    window.tell = (next) => { props.value = next; changed(); };
  };
  new Function("element", "props", "watch", script)(document.getElementById("part"), props, watch);
}"""


def script_of(names) -> str:
    return f"{methods_script()}\n{read_web(*names)}"


@pytest.fixture
def show(empty_page):
    """Call it with a message: a page with the replay of it, finished unless motion is wanted."""
    script = script_of(RACE_SCRIPTS)

    def open_replay(value, reduced_motion="reduce"):
        empty_page.emulate_media(reduced_motion=reduced_motion)
        empty_page.set_content(
            f"<style>{race_css()}</style><div id='part' class='block'><div class='race-host'></div></div>"
        )
        empty_page.evaluate(MOUNT, [script, value])
        return empty_page

    return open_replay


def text_of(page, selector: str) -> str:
    return page.locator(selector).inner_text()


def test_replay_plays_to_the_end_and_says_who_was_faster(show):
    page = show(message(), "no-preference")
    page.locator(".race-speed").select_option("4")
    page.wait_for_function(FINISHED)
    assert "Faster here: one tree step costs 1.2" in text_of(page, ".race-result")
    assert "Identical output, token for token." in text_of(page, ".race-verdict")
    ours, plain = make_trace(step_ms=11.0), make_trace(heads=0, step_ms=9.0)
    for number, trace in enumerate((ours, plain)):
        stats = page.locator(".race-lane").nth(number).locator("dd")
        seconds = sum(step["ms"]["total"] for step in trace["steps"]) / 1000
        assert stats.nth(0).inner_text() == f"{trace['output']['new_tokens'] / seconds:.0f}"
        assert stats.nth(1).inner_text() == str(len(trace["steps"]))
        assert stats.nth(2).inner_text() == f"{trace['output']['tokens_per_step']:.2f}"
        assert page.locator(".race-lane").nth(number).locator(".race-token.on").count() == len(
            trace["output"]["token_ids"]
        )
    assert page.locator(".race-lane").nth(1).locator(".race-token.draft").count() == 0


def test_keys_move_from_step_to_step(show):
    page = show(message())
    page.wait_for_function(FINISHED)  # reduced motion shows the end at once
    page.locator(".race-view").focus()
    shown = page.locator(".race-lane").first.locator("dd").nth(1)
    fill, ground = ("(part) => getComputedStyle(part)." + name for name in ("fill", "backgroundColor"))
    for kind in ("one", "many"):
        bar = page.locator(f".race-ticks .{kind}.on").first.evaluate(fill)
        assert page.locator(f".race-key .{kind}").evaluate(ground) == bar
    page.locator(".race-scrub").evaluate("(bar) => { bar.value = 0; bar.dispatchEvent(new Event('input')); }")
    page.locator(".race-view").focus()
    assert shown.inner_text() == "0"
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    forward = int(shown.inner_text())
    assert forward > 0
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert int(shown.inner_text()) < forward
    page.keyboard.press("Space")
    page.wait_for_function("document.querySelector('.race-play').innerText === 'Pause'")
    page.locator(".race-speed").select_option("4")
    page.wait_for_function(FINISHED)


def test_slower_and_different_are_said_plainly(show):
    page = show(message(), "no-preference")
    differing = {"equal": False, "index": 36, "first": " cat", "second": " dog", "logit_gap": 0.03}
    page.evaluate("tell", message(step_ms=40.0, note="In bfloat16.", **differing))
    page.wait_for_selector(".race-result.bad")
    assert "Slower here: one tree step costs 4" in text_of(page, ".race-result")
    line = text_of(page, ".race-verdict")
    assert "First difference at token 37:" in line
    assert "“␣cat” in Medusa, “␣dog” in Plain decoding; the two logits were 0.030 apart. In bfloat16." in line
    assert page.locator(".race-token.differs").count() == 2


def test_sampled_runs_are_not_called_different(show):
    page = show(message(), "no-preference")
    page.evaluate("tell", message(comparable=False, note="Drawn at random."))
    page.wait_for_selector(".race-verdict.even")
    assert "Not compared token for token. Drawn at random." in text_of(page, ".race-verdict")
    assert page.locator(".race-token.differs").count() == 0


def test_text_of_a_model_stays_text(show):
    page = show(message())
    page.evaluate("tell", message(HOSTILE * 6, equal=False, index=1, first=HOSTILE[0], second=HOSTILE[1]))
    says(page, ".race-verdict", "{")
    everything = page.locator(".race-lane").first.locator(".race-text").text_content()
    for piece in HOSTILE:
        assert piece in everything
    assert HOSTILE[0] in page.locator(".race-verdict").text_content()
    assert page.locator("#part script, #part img").count() == 0
    assert page.title() != "broken"
    page.evaluate("tell", status_message("Timing <b>plain</b> decoding"))
    says(page, ".race-status", "<b>")


# --- The comparison in words, and colours and marks of other drafters.


def lanes(ours, plain, words=None, step_ms=11.0):
    first, second = make_trace(words, step_ms=step_ms), make_trace(words, heads=0, step_ms=9.0)
    return [lane("Medusa", first, ours), lane("Plain decoding", second, plain)]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("ours", "plain", "words", "tone"),
    [([49.0, 65.0, 66.0], [50.0, 50.0, 50.0], "Faster here", "good"),
     ([40.0, 83.0], [49.0, 51.0], "Not clear here, as each was faster in some of these runs", "even"),
     ([49.0, 83.0], [50.0, 51.0], "Break-even here", "even"),
     ([81.0, 83.0], [49.0, 51.0], "Faster here", "good"),
     ([81.0], [81.0], "Faster here", "good")],
)  # fmt: skip
def test_the_verdict_is_that_of_the_figures_as_they_are_shown(show, ours, plain, words, tone):
    result = show(race_message(lanes(ours, plain), None, baseline=1)).locator(".race-result")
    assert words in result.inner_text()
    assert tone in result.get_attribute("class")


def test_what_disturbed_the_times_is_told_beside_their_spread(show):
    both = lanes([8.0, 13.0, 21.0], [9.0, 9.1, 9.2])
    page = show(race_message(both, None, baseline=1, warning=busy_words(BUSY)))
    said = page.locator(".race-doubt").inner_text()
    assert said.startswith("⚠ These times are too long: other programs used 2.5 of 4 cores meanwhile.")
    assert "The runs spread widely" in said


def test_an_n_gram_s_guess_has_its_mark_and_colour_and_stays_before_a_line_break(show):
    ours, plain = lanes([1.0], [1.0], ["one", ".\n", "\n", "two", "\n", ".\n"] * 4)
    ours["drafter"] = "ngram"
    for step in ours["trace"]["steps"]:
        for node in step["nodes"][1:]:
            node["mark"] = "n"
    page = show(race_message([ours, plain], None, baseline=1))
    border = "(mark) => getComputedStyle(mark).borderBottomColor"
    colour = drafter_palette("ngram").accepted
    wanted = "rgb({}, {}, {})".format(*(int(colour[i : i + 2], 16) for i in (1, 3, 5)))
    assert page.locator(".race-lane .draft .race-mark").first.evaluate(border) == wanted
    assert not any("\n" in text for text in page.locator(".race-mark").all_text_contents())
    sign = "(part) => getComputedStyle(part, '::before').content"
    assert page.locator(".race-lane .draft .race-break").first.evaluate(sign) == '"⏎"'
    text = "".join(node["text"] for step in plain["trace"]["steps"] for node in step["nodes"])
    assert page.locator(".race-text").last.text_content().endswith(text)


def test_marks_come_from_the_methods():
    trace = make_trace(heads=2)
    for step in trace["steps"]:
        for node in step["nodes"][1:]:
            node["origin"] |= {"by": "ngram", "head": None}
    marks = {node["mark"] for step in lane("x", trace)["trace"]["steps"] for node in step["nodes"]}
    assert marks == {"", "n"}


# --- The replay's arithmetic: speedup with its range, digits that it allows, warnings; the list of races.


@pytest.fixture
def calculate(empty_page):
    """Call it with an expression and its values: what the replay's own functions make of them."""
    arithmetic = script_of(RACE_SCRIPTS[:-1])  # all but the player

    def run(expression, *values):
        return empty_page.evaluate(
            f"([...given]) => {{ {arithmetic}; return ({expression})(...given); }}", list(values)
        )

    return run


def test_a_figure_has_no_more_digits_than_its_range_allows(calculate):
    for middle, low, high, runs, said in (
        (1.734, 1.732, 1.741, 3, "1.73"),
        (1.734, 1.69, 1.77, 3, "1.73"),
        (1.734, 1.5, 1.9, 3, "1.7"),
        (1.734, 0.9, 2.4, 3, "1.7"),
        (2.734, 1.2, 4.1, 3, "2.7"),
        (13.4, 8.0, 21.0, 3, "13"),
        (0.53, 0.2, 1.9, 3, "0.5"),
        (0.053, 0.02, 1.9, 3, "0.05"),
        (1.734, 1.734, 1.734, 1, "1.7"),
    ):
        figure = {"middle": middle, "low": low, "high": high, "runs": runs}
        assert calculate("(range) => middleWords(range)", figure) == said, figure


def test_the_speedup_is_the_ratio_of_the_speeds_in_the_table(calculate):
    found = calculate(
        "(a, b) => speedRatio(timetable(a), timetable(b))", *lanes([80.0, 60.0, 100.0], [40.0, 60.0, 40.0])
    )
    assert found == {"middle": 2, "low": 1, "high": 2.5, "runs": 3}
    found = calculate(
        "(a, b) => speedRatio(timetable(a), timetable(b))",
        *lanes([263.0, 325.0, 244.0], [103.0, 129.0, 112.0]),
    )
    assert found["middle"] == pytest.approx(263 / 112)  # not the median of 263/103, 325/129 and 244/112
    assert found["low"] == pytest.approx(244 / 112)


def test_overhead_is_tokens_per_step_over_speedup(calculate):
    ours, plain = lanes([80.0, 80.0], [40.0, 40.0])
    overhead = "(a, b, ratio) => overheadOf(timetable(a), timetable(b), ratio)"
    kept = make_trace()["output"]["tokens_per_step"]
    found = calculate(overhead, ours, plain, {"middle": 2, "low": 2, "high": 2, "runs": 2})
    assert found["middle"] == pytest.approx(kept / 2)
    said = "(a, b) => comparison([a, a, b].map(timetable), 2).sentence"
    assert "costs 1.00 steps of Medusa and keeps" in calculate(said, ours, plain)


@pytest.mark.parametrize(
    ("ours", "plain", "words"),
    [
        ([8.0, 13.0, 21.0], [9.0, 9.1, 9.2], "Medusa from 8 to 21 tokens/s"),
        ([80.0, 82.0], [40.0, 41.0], ""),
        ([80.0], [40.0], "One run of each has no range"),
    ],
)
def test_a_wide_spread_and_single_runs_are_warned_of(calculate, ours, plain, words):
    found = calculate("(a, b) => doubts([timetable(a), timetable(b)])", *lanes(ours, plain))
    assert words in found
    assert bool(found) == bool(words)


def test_the_list_holds_the_last_eight_also_where_nothing_can_be_stored(calculate):
    """A page without an address of its own may not use the browser's storage."""
    message = json.loads(race_message(lanes([80.0], [40.0]), None, baseline=1))
    shown = calculate(
        """(message) => {
          const gallery = buildGallery(() => {});
          gallery.show({ ...message, recorded: {} }, true);
          const before = gallery.root.hidden;
          for (let i = 0; i < 10; i += 1) gallery.show({ ...message, seq: i }, true);
          const entries = [...gallery.root.querySelectorAll(".race-entry")];
          const current = entries.map((one) => one.hasAttribute("aria-current"));
          return { before, entries: entries.length, current };
        }""",
        message,
    )
    assert shown == {"before": True, "entries": 9, "current": [True, *[False] * 8]}  # and the recorded one


def test_no_raised_number_stands_beside_digits(calculate):
    """Of the text "at 7:40 am for $33." those tokens are bare that end in a digit or come before one."""
    texts = ["at", " ", "7", ":", "4", "0", " am", " for", " $", "33", "."]
    bare = "(texts) => texts.map((text, i) => besideDigits(text, texts[i + 1]))"
    marked = [text for text, is_bare in zip(texts, calculate(bare, texts), strict=True) if not is_bare]
    assert marked == ["at", " am", " for", "."]


def test_lanes_that_wait_are_named_by_menu_and_tick(calculate):
    detail = {"method": "medusa", "copies": True, "second-method": "none", "second-copies": SAME}
    titles = calculate("laneTitles", detail)
    assert titles == [["Medusa heads + lookup", "medusa"], ["Plain decoding", "none"]]
    same = {**detail, "copies": False, "second-method": SAME, "second-copies": True}
    assert [title for title, _ in calculate("laneTitles", same)] == [
        "Medusa heads",
        "Medusa heads + lookup",
    ]
