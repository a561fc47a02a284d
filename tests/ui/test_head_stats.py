"""What the Trees tab computes: the shipped record, trees of a size, files read as data, a measurement."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import tiny
from page_runs import SHIPPED

from medusa_core.checkpoints.locate import embedded_model
from medusa_core.config import LoadConfig
from medusa_core.drafters.medusa import medusa_draft, with_heads
from medusa_core.errors import MedusaError
from medusa_core.trees.budget import LatencyPoint, parse_latency
from medusa_core.trees.search import read_accuracies, search_tree
from medusa_core.trees.tree import Topology, load_tree
from ui.figures import tree_charts
from ui.records.settings import Selection
from ui.records.updates import StopFlag
from ui.runs.session import Session
from ui.tabs import trees
from ui.tabs.trees import head_stats, timing
from ui.tabs.trees.head_stats import HeadStats
from ui.tabs.trees.timing import measure

ROWS = ((0.6, 0.2, 0.1), (0.5, 0.2, 0.05), (0.3, 0.1, 0.1))
LAB = HeadStats(ROWS, "written here")
TIMED = replace(
    LAB,
    latency=tuple(
        LatencyPoint(
            nodes=nodes, step_ms=ms, tokens_per_step=kept, step_ms_range=(ms - 1, ms + 2), verify=1.0
        )
        for nodes, ms, kept in ((1, 10, 1), (4, 11, 1.9), (16, 14, 2.2), (64, 40, 2.4))
    ),
    machine="a machine",
)
PLAIN_TYPES = {"bar", "scatter", "heatmap"}


# ---- where a record comes from --------------------------------------------------------------------------


def test_the_shipped_accuracies_are_there_without_loading_anything():
    session = Session(LoadConfig())
    stats = head_stats.shipped_stats(session, Selection())
    file = embedded_model() / "heads" / "accuracies.json"
    assert [list(row) for row in stats.accuracies] == read_accuracies(file)
    assert "counted over" in stats.source
    assert "not loaded yet" in session.models.badge(Selection())


def test_heads_without_accuracies_say_that_they_are_assumed(session):
    assert head_stats.shipped_stats(session, Selection()).source == head_stats.ASSUMED


def test_bad_accuracies_beside_the_heads_keep_no_page_from_opening(engine_folder, tmp_path, caplog):
    (tmp_path / "medusa_lm_head.safetensors").touch()
    (tmp_path / "accuracies.json").write_text("[[2.0]]", "utf-8")
    stats = head_stats.shipped_stats(Session(LoadConfig(str(engine_folder), str(tmp_path))), Selection())
    assert stats.source == head_stats.ASSUMED
    assert "outside 0 to 1" in caplog.text


def test_other_heads_bring_their_own_accuracies(session, model):
    rows = [[0.4, 0.1], [0.3, 0.1], [0.2, 0.1]]
    own = with_heads(tiny.build_engine(model, tiny.fitted_heads(model)), accuracies=rows)
    selection = Selection().with_engine(session.add_engine(own), "mine")
    stats = trees._follow(session, selection, LAB)
    assert [list(row) for row in stats.accuracies] == rows
    assert stats.belongs_to(selection)
    assert "“mine”" in stats.source
    assert not isinstance(
        trees._follow(session, selection.with_tree([[0]]), stats), HeadStats
    )  # a tree changes nothing
    assert trees._follow(session, Selection(), stats).belongs_to(Selection())


# ---- trees of a size ------------------------------------------------------------------------------------


def test_the_sentence_gives_size_tokens_and_where_known_the_best_size():
    assert head_stats.sentence(LAB, 2) == "Grown tree: 2 nodes with the root, 1.60 tokens per step expected."
    words = head_stats.sentence(TIMED, 4)
    best = head_stats.best_size(TIMED)
    assert (
        f"best size on the machine that was timed is {best.nodes} nodes with {best.tokens_per_second:.0f}"
        in words
    )
    assert "Plain decoding gives 100." in words


@pytest.mark.sample
@pytest.mark.parametrize("stats", [LAB, TIMED])
@pytest.mark.parametrize("dark", [False, True])
def test_the_charts_use_types_the_pages_plotly_knows(stats, dark):
    figures = trees.draw(stats, 9, dark)[2:6]
    for figure in figures:
        assert {trace.type for trace in figure.data} <= PLAIN_TYPES
        assert not figure.layout.title.text
        figure.to_json()


def test_without_step_times_the_charts_say_how_to_get_them():
    _, time, speed = trees.draw_size(LAB, 9, False)[2:]
    for figure in (time, speed):
        assert not figure.data
        assert "Measure on this machine" in figure.layout.annotations[0].text


def test_the_curves_are_those_of_the_search_and_the_best_point_is_the_highest():
    growth = head_stats.growth(TIMED)
    for nodes in (2, 5, 30):
        assert growth.optimised[nodes - 1] == pytest.approx(search_tree(ROWS, nodes - 1).expected_length)
    speeds = head_stats.speeds(TIMED)
    assert [speed.nodes for speed in speeds] == list(range(1, 41))  # three heads of three guesses
    trees_only = speeds[1:]
    best = head_stats.best_size(TIMED)
    assert best.tokens_per_second == max(speed.tokens_per_second for speed in trees_only)
    figure = tree_charts.speed_by_size(head_stats.timed(TIMED), speeds, 9, dark=False)
    star = next(trace for trace in figure.data if trace.name.startswith("best"))
    assert (star.x[0], star.y[0]) == (best.nodes, best.tokens_per_second)
    measured = next(trace for trace in figure.data if trace.name == "measured")
    assert list(measured.y) == pytest.approx([100, 1900 / 11, 2200 / 14, 60])
    tokens = tree_charts.tokens_by_size(growth, 9, head_stats.timed(TIMED), dark=False)
    assert all(trace.name or trace.line.width == 0 for trace in tokens.data)  # no line without a word for it


# ---- files ----------------------------------------------------------------------------------------------


def test_a_saved_tree_loads_here_and_on_the_command_line(tmp_path):
    text = head_stats.tree_text(LAB, head_stats.tree_of(LAB, 7))
    stats = head_stats.read_stats(text, LAB, "file")
    assert sorted(stats.shown) == sorted(search_tree(ROWS, 6).choices)
    assert head_stats.sentence(stats, 30).startswith("Loaded tree: 7 nodes")
    file = tmp_path / "tree.json"
    file.write_text(text, encoding="utf-8")
    assert load_tree(str(file)) == Topology.from_choices(stats.shown)
    assert head_stats.read_stats(json.dumps(SHIPPED), LAB, "file").shown == ((0,), (1,), (0, 0))


def test_a_saved_tree_may_have_passed_through_an_editor_that_begins_files_with_a_mark(tmp_path):
    file = tmp_path / "tree.json"
    file.write_text("\ufeff" + head_stats.tree_text(LAB, head_stats.tree_of(LAB, 7)), encoding="utf-8")
    assert load_tree(str(file)).size == 7
    assert trees._load(str(file), LAB)[0].shown


def test_saved_numbers_load_here_and_in_a_search(tmp_path):
    text = head_stats.measurements_text(TIMED)
    file = tmp_path / "a.json"
    file.write_text(text, encoding="utf-8")
    assert [tuple(row) for row in read_accuracies(file)] == list(ROWS)
    assert tuple(parse_latency(json.loads(text))) == TIMED.latency
    again = head_stats.read_stats(text, LAB, "from your file")
    assert again.accuracies == ROWS
    assert (again.latency, again.machine) == (TIMED.latency, "a machine")


def test_accuracies_without_step_times_put_those_of_other_heads_away():
    assert head_stats.read_stats("[[0.5, 0.1]]", TIMED, "file").latency == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("7", "neither a tree nor accuracies"),
        ("{}", "neither a tree nor accuracies"),
        ('["abc"]', "neither a tree nor accuracies"),
        ("[]", "accuracies are empty"),
        ("[[0.5, NaN]]", "outside 0 to 1"),
        ("[[0.1, 0.2]]", "sort its accuracies"),
        ("[[0], [0, 0], [0, 0, 0], [0, 0, 0, 0]]", "there are 3 heads"),
        ('{"choices": []}', "has no nodes"),
        ('{"choices": [["<b>"]]}', "not a list of ranks"),
        (json.dumps([[i] for i in range(400)]), "largest size is 256"),
        (json.dumps([[0.5]] * 17), "the page shows 16"),
        (json.dumps({"accuracies": [[0.5]], "latency": [{"nodes": 1}]}), "step_ms"),
        (" " * 200_001, "larger than 200 kB"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(text, words):
    with pytest.raises(MedusaError, match=words):
        head_stats.read_stats(text, LAB, "file")


def test_what_a_file_says_of_its_machine_stays_short_text():
    data = {"accuracies": [[0.5]], "machine": {"processor": "x" * 999, "threads": 1}, "positions": "<b>"}
    stats = head_stats.read_stats(json.dumps(data), LAB, "from your file")
    assert len(stats.machine) == 120
    assert stats.source == "from your file"
    assert head_stats.read_stats('{"accuracies": [[0.5]], "machine": [1]}', LAB, "file").machine == ""


# ---- measuring ------------------------------------------------------------------------------------------


def finished(session, stats, again=False, selection=None, flag=None):
    items = list(measure(session, stats, selection or Selection(), again, flag or StopFlag()))
    assert not any(item.problem for item in items), items[-1]
    return items


def test_a_measurement_fills_the_charts(session):
    items = finished(session, LAB)
    stats = items[-1].stats
    assert stats.accuracies == ROWS  # not asked to count again
    assert [point.nodes for point in stats.latency] == [1, 2, 4, 8, 12, 16, 24, 32]  # 40 nodes at most
    assert "float32" in stats.machine
    assert "Best size:" in items[-1].status
    assert any("run 3 of 40" in (item.status or "") for item in items)


def test_assumed_accuracies_are_counted_first(session, engine, monkeypatch):
    monkeypatch.setattr(timing, "EFFORT", replace(timing.EFFORT, rounds=1))
    stats = finished(session, head_stats.shipped_stats(session, Selection()))[-1].stats
    assert len(stats.accuracies) == medusa_draft(engine).heads.count
    assert "counted here" in stats.source
    assert stats.latency


def test_stop_keeps_complete_rounds_only(session):
    flag = StopFlag()
    items = []
    for item in measure(session, LAB, Selection(), False, flag):
        items.append(item)
        if "run 12 of 40" in (item.status or ""):
            flag.stopped = True
    assert items[-1].stats.latency
    assert "Measured in 1 of 5 rounds" in items[-1].status
    items = finished(session, TIMED, flag=StopFlag(stopped=True))
    assert items[-1].stats == TIMED
    assert "Stopped" in items[-1].status


def test_stop_while_counting_keeps_the_record(session):
    flag, items = StopFlag(), []
    for item in measure(session, TIMED, Selection(), True, flag):
        items.append(item)
        flag.stopped |= "text 1 of" in (item.status or "")
    assert items[-1].stats == TIMED
    assert "the step times stay" in items[-1].status


def test_own_heads_are_the_ones_measured(session, model):
    one = tiny.build_engine(model, tiny.fitted_heads(model, 1))
    selection = Selection().with_engine(session.add_engine(one), "one head")
    items = finished(session, LAB, selection=selection)
    assert any("one head" in (item.badge or "") for item in items)
    assert len(items[-1].stats.accuracies) == 1  # three rows of other heads would not fit
