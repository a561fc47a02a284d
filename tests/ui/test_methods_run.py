"""The Methods tab: methods are timed in turn, complete rounds are shown, the picture says what it shows."""

from __future__ import annotations

import math
import re
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa_core.config import GenerationConfig
from medusa_core.drafters import drafter_names, method, method_names
from medusa_core.evaluation.limits import Limit
from medusa_core.evaluation.other_work import OtherWork
from ui.figures.method_speeds import MethodSpeed, line_end, line_speeds, tokens_against_time
from ui.figures.name_places import LETTER, LINE_HEIGHT, POINT, SAME, name_places
from ui.records.examples import ASSETS
from ui.records.figures import measured_figures, stored_figures
from ui.records.settings import MOST_TOKENS, Selection, make_config
from ui.records.updates import StopFlag
from ui.runs.methods import MethodsRequest, MethodsUpdate
from ui.serving.kept import KeptFigures
from ui.tabs.methods import conclusion, shown_methods

SPEEDS = [
    MethodSpeed("none", 1.0, 2.5),
    MethodSpeed("lookup", 1.5, 2.7),
    MethodSpeed("medusa", 2.5, 4.0),
    MethodSpeed("medusa+lookup", 3.0, 6.0),
]


def rounds_of(updates):
    return [update for update in updates if isinstance(update, MethodsUpdate)]


def test_all_methods_of_the_model_are_run_and_each_round_is_shown(session, engine):
    updates = list(session.run(MethodsRequest("abca", 16, 2), StopFlag()))
    assert [update.status for update in updates if update.problem] == []
    first, last = rounds_of(updates)
    own = {name for name in drafter_names() if not method(name).has_weights} | {"medusa", "medusa+lookup"}
    assert set(first.record["methods"]) == set(last.record["methods"]) == set(last.options) == own
    assert [update.record["settings"]["runs"] for update in (first, last)] == [1, 2]
    assert updates[-1].status == "Measured."
    for name, figures in last.record["methods"].items():
        if name in engine.methods():
            steps = list(
                engine.stream(engine.encode("abca"), GenerationConfig(max_new_tokens=16, method=name))
            )
            kept = sum(len(step.emitted) for step in steps)
            assert figures["new_tokens"] == 2 * kept
            if not method(name).has_weights:  # the shared engine has other heads
                assert figures["tokens_per_step"] == pytest.approx(kept / len(steps), abs=1e-3)
        assert figures["identical_outputs"] == "1 of 1"  # float32
        # The reading of the prompt counts, as in the Speed tab.
        assert figures["tokens_per_second"] <= figures["decode_tokens_per_second"]
    shown = shown_methods(measured_figures(last.record, Selection(), {}), ASSETS)
    plain = next(row for row in shown.rows if row["method"] == "Plain decoding")
    assert (plain["overhead"], plain["speedup"], plain["tokens per step"]) == ("1.00", "1.00", "1.00")


@pytest.mark.parametrize(("cores", "warned"), [(0.1, False), (2.5, True)])
def test_other_programs_that_disturb_it_are_told_and_its_figures_stay_in_the_tab(
    session, monkeypatch, cores, warned
):
    monkeypatch.setattr(OtherWork, "record", lambda _: {"cores": 4, "other_cores_busy": cores})
    *_, last = rounds_of(session.run(MethodsRequest("abca", 16, 1), StopFlag()))
    found = measured_figures(last.record, Selection(), last.options)
    said = shown_methods(found, ASSETS).chosen(False).words
    assert ("These times are too long: other programs used 2.5 of 4 cores" in said) == warned
    begun = session.figures.begin()
    kept = KeptFigures(ASSETS, session.models.config_of, keeps=False).adopt(begun, found)
    assert (kept is begun) == warned


def test_no_step_is_captured_while_it_measures(captured, captures, monkeypatch):
    monkeypatch.setattr("ui.runs.methods.NOTE_SECONDS", 0)  # a status after each run
    request = MethodsRequest("abca", 40, 2)
    counts = [
        len(captures)
        for update in request._measured(captured, make_config(request._settings()), Limit())
        if (update.status or "").startswith("Timing ")
    ]
    assert len(counts) > 8
    assert len(set(counts)) == 1


def stopped_after(session, rounds):
    """The updates of a run that is stopped when so many rounds were complete."""
    flag, seen = StopFlag(), []
    for update in session.run(MethodsRequest("abca", 16, 3), flag):
        seen.append(update)
        flag.stopped = flag.stopped or len(rounds_of(seen)) >= rounds
    return seen


def test_stopped_it_keeps_complete_rounds_and_shows_nothing_half(session):
    before, within = stopped_after(session, 0), stopped_after(session, 1)
    assert rounds_of(before) == []
    assert before[-1].status.startswith("Stopped before ")
    (only,) = rounds_of(within)
    assert only.record["settings"]["runs"] == 1
    assert within[-1].status == "Stopped: only the complete rounds are shown."


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (MethodsRequest("", 16, 1), "prompt is empty"),
        (MethodsRequest("abc", 16, 9), "9 runs of each"),
        (MethodsRequest("abc", MOST_TOKENS + 1, 1), f"the page allows {MOST_TOKENS}"),
    ],
)
def test_what_is_beyond_the_page_s_limits_is_refused_before_any_run(session, request_, words):
    (update,) = session.run(request_, StopFlag())
    assert update.problem
    assert words in update.status


def test_the_conclusion_names_who_keeps_most_and_who_is_fastest():
    assert conclusion(SPEEDS) == (
        "Most tokens a step: Medusa heads + lookup, with 3.00. Fastest: Medusa heads, with 2.50, since "
        "its step takes 4.00 ms and that of Medusa heads + lookup 6.00 ms."
    )
    assert conclusion(SPEEDS[:3]) == (
        "Most tokens a step: Medusa heads, with 2.50, and it is also the fastest, since such a step takes "
        "only 1.60 times as long as plain decoding’s."
    )
    assert conclusion([*SPEEDS[:3], MethodSpeed("ngram", 1.6, 2.5)]).startswith(
        "Most tokens a step: Medusa heads, with 2.50. No other method is clearly faster"
    )
    assert conclusion([SPEEDS[0], MethodSpeed("medusa", 2.0, 6.0)]).startswith(
        "No method pays here. Most tokens a step: Medusa heads"
    )


@pytest.mark.parametrize("dark", [False, True])
def test_a_point_lies_on_the_line_of_its_own_speed(dark):
    figure = tokens_against_time(SPEEDS, dark)
    titles = [speed.title for speed in SPEEDS]
    points = {trace.name: trace for trace in figure.data if trace.name in titles}
    assert list(points) == titles
    for speed in SPEEDS:
        trace = points[speed.title]
        assert 1000 * trace.y[0] / trace.x[0] == pytest.approx(speed.tokens_per_second)
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert all((trace.x[0], trace.y[0]) == (0, 0) for trace in lines)
    slopes = sorted(1000 * trace.y[1] / trace.x[1] for trace in lines)
    written = [note.text for note in figure.layout.annotations]
    assert set(titles) < set(written)
    labels = sorted(float(text) for text in written if text not in titles)
    plain = SPEEDS[0].tokens_per_second
    assert slopes == pytest.approx(sorted([*labels, plain]))
    assert figure.layout.xaxis.range[0] == figure.layout.yaxis.range[0] == 0  # else slopes were no speeds


@pytest.mark.parametrize("speeds", [[266.0, 383.0], [0.4, 0.9], [100.0], [10.0, 100_000.0]])
def test_lines_are_round_and_span_the_methods(speeds):
    lines = line_speeds(speeds)
    assert 1 <= len(lines) <= 12
    assert lines == sorted(lines)
    assert 0 < lines[0] <= max(speeds)
    assert all(re.fullmatch(r"\d{1,3}0*(\.\d+)?", f"{line:.10g}") for line in lines)


def test_a_line_ends_at_the_border_it_meets_first():
    assert line_end(250, 8, 3) == (8, 2)
    assert line_end(1000, 8, 3) == (3, 3)


def boxes_of(points, names, places):
    """Left, right, bottom and top of each name that has a place."""
    for (x, y), name, place in zip(points, names, places, strict=True):
        if place is not None:
            half = LETTER * len(name) / 2
            middle, height = x + place.right + place.side * half, y + place.up
            yield middle - half, middle + half, height - LINE_HEIGHT / 2, height + LINE_HEIGHT / 2


def meet(one, other):
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def distance(box, point):
    across = max(box[0] - point[0], 0, point[0] - box[1])
    return math.hypot(across, max(box[2] - point[1], 0, point[1] - box[3]))


def on_line(point, place):
    """The places of a line, away from its own point."""
    length = math.hypot(place.right, place.up) if place.led else 0
    shares = [part / length for part in range(POINT, int(length))]
    return [(point[0] + share * place.right, point[1] + share * place.up) for share in shares]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12))
def test_a_name_is_nearest_to_its_own_point_and_its_line_meets_no_other(points):
    """In each size of the chart; and no name lies over another, over a point or over a line."""
    names, sizes = [f"a drafter {number}" for number in range(len(points))], [(800, 330), (500, 280)]
    places = name_places(points, names, sizes)
    for width, height in sizes:
        dots = [(width * x, height * y) for x, y in points]
        found = list(boxes_of(dots, names, places))
        assert not any(meet(one, other) for one, other in combinations(found, 2))
        named = [(dot, place) for dot, place in zip(dots, places, strict=True) if place is not None]
        for (dot, place), box in zip(named, found, strict=True):
            line = on_line(dot, place)
            others = [other for other in dots if math.dist(dot, other) > SAME]
            own = 0 if line else distance(box, dot)
            assert all(distance(box, other) > max(own, POINT / 2) for other in others)
            assert all(distance((x, x, y, y), other) > POINT / 2 for other in others for x, y in line)
            assert not any(distance(other, at) == 0 for other in found if other != box for at in line)


def test_a_name_without_room_at_its_point_stands_farther_off_on_a_line_or_is_left_out():
    crowd = [(0.3 + 0.015 * number, 0.5) for number in range(12)]
    names = [f"drafter {number}" for number in range(12)]
    places = name_places(crowd, names, [(800, 330)])
    assert not places[0].led
    assert sum(place is not None and place.led for place in places) > 2
    assert None in places
    assert name_places(crowd[:1], ["a name of far too many letters" * 9], [(800, 330)]) == [None]


def test_numbers_of_lines_do_not_lie_over_each_other():
    steep = [MethodSpeed("none", 1.0, 0.36), MethodSpeed("medusa", 5.3, 8.1)]
    notes = tokens_against_time(steep, dark=False, sizes=[(500, 280)]).layout.annotations
    above = [note.x for note in notes if note.yanchor == "bottom"]
    pixels = sorted(500 * x / (1.16 * 8.1) for x in above)
    assert len(pixels) > 1
    assert all(right - left >= 36 for left, right in pairwise(pixels))


def test_nearly_every_method_that_was_measured_has_its_name_in_the_picture_and_each_on_hover():
    shown = shown_methods(stored_figures(ASSETS), ASSETS)
    for copies in (False, True):
        speeds = shown.chosen(copies).speeds
        figure = tokens_against_time(speeds, dark=False)
        titles, written = {speed.title for speed in speeds}, {note.text for note in figure.layout.annotations}
        assert len(titles - written) <= 1
        assert titles <= {
            trace.hovertemplate.partition(":")[0] for trace in figure.data if trace.hovertemplate
        }


def test_the_tick_puts_each_drafter_s_pair_in_its_place():
    stored = shown_methods(stored_figures(ASSETS), ASSETS)
    titles = {speed.title for speed in stored.chosen(False).speeds}
    copying = {speed.title for speed in stored.chosen(True).speeds}
    assert len(titles) == len(copying) < len(method_names())
    assert {"Plain decoding", "Medusa heads", "Draft model"} <= titles
    assert {"Plain decoding", "Medusa heads + lookup", "Draft model + lookup"} <= copying
    for choice in (titles, copying):
        assert [
            row["method"] for row in stored.chosen(choice is copying).rows if row["method"] not in choice
        ] == []


def test_without_a_record_the_stage_says_what_to_do(tmp_path):
    shown = shown_methods(stored_figures(tmp_path), tmp_path)
    assert shown.words.startswith("Nothing measured yet")
    assert not shown.speeds
    assert tokens_against_time(shown.speeds, dark=False).data == ()
