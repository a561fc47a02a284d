"""The replay's arithmetic: speedup with its range, digits that it allows, warnings; the list of races."""

from __future__ import annotations

import json

import pytest
from trace_factory import make_trace

from medusa_core.trace.replay.view import WEB, methods_script
from ui.components.lane_controls import SAME
from ui.components.views import RACE_SCRIPTS
from ui.records.messages import lane, race_message

pytestmark = pytest.mark.browser

SCRIPTS_READ = [(WEB / name).read_text("utf-8") for name in RACE_SCRIPTS[:-1]]  # all but the player
ARITHMETIC = "\n".join([methods_script(), *SCRIPTS_READ])


@pytest.fixture(scope="module")
def calculate(chromium):
    """Call it with an expression and its values: what the replay's own functions make of them."""
    page = chromium.new_page()

    def run(expression, *values):
        return page.evaluate(
            f"([...given]) => {{ {ARITHMETIC}; return ({expression})(...given); }}", list(values)
        )

    yield run
    page.close()


@pytest.mark.parametrize(
    ("middle", "low", "high", "runs", "said"),
    [
        (1.734, 1.732, 1.741, 3, "1.73"),
        (1.734, 1.69, 1.77, 3, "1.73"),
        (1.734, 1.5, 1.9, 3, "1.7"),
        (1.734, 0.9, 2.4, 3, "1.7"),
        (2.734, 1.2, 4.1, 3, "2.7"),
        (13.4, 8.0, 21.0, 3, "13"),
        (0.53, 0.2, 1.9, 3, "0.5"),
        (0.053, 0.02, 1.9, 3, "0.05"),
        (1.734, 1.734, 1.734, 1, "1.7"),
    ],
)
def test_a_figure_has_no_more_digits_than_its_range_allows(calculate, middle, low, high, runs, said):
    figure = {"middle": middle, "low": low, "high": high, "runs": runs}
    assert calculate("(range) => middleWords(range)", figure) == said


def tables(ours, plain):
    lanes = lane("Medusa", make_trace(), ours), lane("Plain decoding", make_trace(heads=0), plain)
    return json.loads(json.dumps(lanes))


def test_the_speedup_is_the_ratio_of_the_speeds_in_the_table(calculate):
    found = calculate(
        "(a, b) => speedRatio(timetable(a), timetable(b))", *tables([80.0, 60.0, 100.0], [40.0, 60.0, 40.0])
    )
    assert found == {"middle": 2, "low": 1, "high": 2.5, "runs": 3}
    found = calculate(
        "(a, b) => speedRatio(timetable(a), timetable(b))",
        *tables([263.0, 325.0, 244.0], [103.0, 129.0, 112.0]),
    )
    assert found["middle"] == pytest.approx(263 / 112)  # not the median of 263/103, 325/129 and 244/112
    assert found["low"] == pytest.approx(244 / 112)


def test_overhead_is_tokens_per_step_over_speedup(calculate):
    ours, plain = tables([80.0, 80.0], [40.0, 40.0])
    overhead = "(a, b, ratio) => overheadOf(timetable(a), timetable(b), ratio)"
    kept = make_trace()["output"]["tokens_per_step"]
    found = calculate(overhead, ours, plain, {"middle": 2, "low": 2, "high": 2, "runs": 2})
    assert found["middle"] == pytest.approx(kept / 2)


@pytest.mark.parametrize(
    ("ours", "plain", "words"),
    [
        ([8.0, 13.0, 21.0], [9.0, 9.1, 9.2], "Medusa from 8 to 21 tokens/s"),
        ([80.0, 82.0], [40.0, 41.0], ""),
        ([80.0], [40.0], "One run of each has no range"),
    ],
)
def test_a_wide_spread_and_single_runs_are_warned_of(calculate, ours, plain, words):
    found = calculate("(a, b) => doubts([timetable(a), timetable(b)])", *tables(ours, plain))
    assert words in found
    assert bool(found) == bool(words)


def test_the_list_holds_the_last_eight_also_where_nothing_can_be_stored(calculate):
    """A page without an address of its own may not use the browser's storage."""
    message = json.loads(race_message(tables([80.0], [40.0]), None, baseline=1))
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
