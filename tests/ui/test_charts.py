"""The charts of a run and of a training: right numbers, plain chart types, no torch behind them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from trace_factory import make_trace

from medusa_core.evaluation.compare_heads import Gain
from medusa_core.trace.replay.colours import drafter_palette, palette
from ui.figures import charts
from ui.figures.training import Curves, LossPoint, ScorePoint, all_curves
from ui.tabs.train import gain_table
from ui.tabs.train.run import History

PLAIN_TYPES = {"bar", "scatter", "heatmap"}


@pytest.fixture
def trace():
    return make_trace(heads=3, ranks=2)


@pytest.fixture
def plain():
    return make_trace(heads=0)


@pytest.mark.parametrize("dark", [False, True])
def test_every_chart_draws_with_chart_types_the_old_plotly_js_knows(trace, plain, dark):
    for run in (trace, plain, {"steps": []}):
        for figure in charts.all_charts(run, dark):
            assert {trace_.type for trace_ in figure.data} <= PLAIN_TYPES
            assert not figure.layout.title.text
            figure.to_json()


def test_accepted_lengths_add_up_to_the_tokens(trace):
    root, drafts, mean = charts.all_charts(trace, dark=False)[0].data
    assert list(root.x) == list(drafts.x) == list(range(1, len(trace["steps"]) + 1))
    assert sum(root.y) + sum(drafts.y) == trace["output"]["new_tokens"]
    assert mean.y[0] == pytest.approx(trace["output"]["tokens_per_step"])


def test_phases_add_up_to_the_total(trace):
    bars = charts.all_charts(trace, dark=False)[1].data
    assert list(bars[0].x) == list(range(1, len(trace["steps"]) + 1))
    columns = [bar.y for bar in bars]
    for *phases, step in zip(*columns, trace["steps"], strict=True):
        assert sum(phases) == pytest.approx(step["ms"]["total"])
        assert min(phases) >= 0


def test_a_recording_shows_shares_and_no_times_of_its_first_step(trace):
    bars = charts.all_charts(trace, dark=False, recording=True)[1].data
    assert list(bars[0].x) == list(range(2, len(trace["steps"]) + 1))
    for shares, step in zip(zip(*(bar.y for bar in bars), strict=True), trace["steps"][1:], strict=True):
        assert sum(shares) == pytest.approx(1)
        assert shares[1] == pytest.approx(step["ms"]["verify"] / step["ms"]["total"])
    assert not any(" ms" in bar.name + bar.hovertemplate for bar in bars)
    first = charts.all_charts({**trace, "steps": trace["steps"][:1]}, dark=False, recording=True)[1]
    assert not first.data


def test_plain_decoding_says_why_there_is_nothing_to_show(plain):
    for figure in charts.all_charts(plain, dark=False)[2:]:
        assert not figure.data
        assert "plain decoding" in figure.layout.annotations[0].text


def test_figures_need_neither_torch_nor_gradio():
    code = "import sys, ui.figures.charts; sys.exit(bool({'torch', 'gradio'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_rows_are_called_heads_only_where_the_drafter_has_some(trace):
    by_head, by_rank = charts.all_charts(trace, dark=False)[2:]
    assert list(by_head.data[0].x) == list(by_rank.data[0].y) == ["head 1", "head 2", "head 3"]
    for step in trace["steps"]:
        for node in step["nodes"]:
            node["origin"]["head"] = None
    by_depth, by_rank = charts.all_charts(trace, dark=False)[2:]
    assert list(by_depth.data[0].x) == list(by_rank.data[0].y) == ["depth 1", "depth 2", "depth 3"]


def test_charts_of_thousands_of_steps_are_drawn_by_bins(trace):
    steps = [{**step, "index": i} for i, step in enumerate(trace["steps"] * (9000 // len(trace["steps"])))]
    long = {**trace, "steps": steps}
    root, drafts, mean = charts.all_charts(long, dark=False)[0].data
    together = -(-len(steps) // 400)
    assert len(root.y) == len(drafts.y) == -(-len(steps) // together) <= 400
    assert mean.y[0] == pytest.approx(charts.all_charts(trace, dark=False)[0].data[2].y[0])
    kept = [len(step["emitted"]) - 1 for step in steps[:together]]
    assert drafts.y[0] == pytest.approx(sum(kept) / together)
    assert drafts.x[0] == pytest.approx((1 + together) / 2)
    figures = charts.all_charts(long, dark=False)
    for figure in figures[:2]:
        assert f"each bar is the mean of {together} steps" in figure.layout.xaxis.title.text
    assert sum(len(figure.to_json()) for figure in figures) < 200_000


# --- The charts of accepted guesses have one denominator, all steps: a row of ranks adds up to its bar.


def node(number, parent, depth, rank):
    origin = {"by": "ngram" if depth else "", "head": None, "rank": rank, "label": "", "note": ""}
    return {"id": number, "parent": parent, "depth": depth, "origin": origin}


def run(*steps):
    """A run of trees that change: each step is its nodes below the root and its path."""
    ms = dict.fromkeys([*charts.PHASES, "total"], 1.0)
    made = [
        {"index": i, "nodes": [node(0, None, 0, None), *nodes], "path": path, "emitted": path, "ms": ms}
        for i, (nodes, path) in enumerate(steps)
    ]
    return {"steps": made, "config": {"drafter": {"name": "ngram"}}}


BY_HAND = run(
    ([], [0]),  # nothing to draft
    ([node(1, 0, 1, 0), node(2, 0, 1, 1), node(3, 1, 2, 0), node(4, 2, 2, 1)], [0, 2, 4]),
    ([node(1, 0, 1, 0), node(2, 1, 2, 0)], [0, 1, 2]),
    ([node(1, 0, 1, 0), node(2, 1, 2, 0)], [0]),
)


def test_shares_are_those_counted_by_hand_of_all_steps():
    bars, cells = charts.all_charts(BY_HAND, dark=False)[2:]
    assert list(bars.data[0].y) == [2 / 4, 2 / 4]  # both depths in steps 2 and 3 of the four
    assert [list(row) for row in cells.data[0].z] == [[1 / 4, 1 / 4], [1 / 4, 1 / 4]]
    assert "share of all 4 steps" in bars.layout.yaxis.title.text
    assert "share of all 4 steps" in cells.layout.xaxis.title.text
    # Of the guesses of depth 2 and rank 1, those of step 3 alone had an accepted parent.
    assert "accepted in 1 of 4 steps<br>1 of 1 guess whose parent" in cells.data[0].hovertext[1][0]
    assert [list(counts) for counts in bars.data[0].customdata] == [[2, 4, 3], [2, 4, 3]]  # of three trees


@pytest.mark.parametrize("trace", [BY_HAND, make_trace(heads=3, ranks=2), make_trace(heads=4, ranks=14)])
def test_a_row_of_ranks_adds_up_to_the_bar_beside_it(trace):
    bars, cells = (figure.data[0] for figure in charts.all_charts(trace, dark=False)[2:])
    assert list(bars.x) == list(cells.y)
    for bar, row in zip(bars.y, cells.z, strict=True):
        assert sum(share for share in row if share is not None) == pytest.approx(bar)
    assert len(cells.x) <= charts.MAX_RANKS


@pytest.mark.parametrize("dark", [False, True])
def test_accepted_guesses_have_the_drafter_s_colour(dark):
    own = drafter_palette("ngram", dark)
    assert own.accepted != palette(dark).accepted
    lengths, _, by_depth, _ = charts.all_charts(BY_HAND, dark)
    assert lengths.data[1].marker.color == by_depth.data[0].marker.color == own.accepted
    assert drafter_palette("medusa", dark) == palette(dark)


# --- The table of what heads gained, and its warning where the times contradict themselves.


@pytest.mark.parametrize(("speedup", "busy"), [(1.2, False), (1.75, True)])
def test_a_step_that_is_cheaper_than_a_plain_one_is_doubted(speedup, busy):
    gain = Gain(16, 1.14, 1.0, 1.32, speedup, 4)
    table = gain_table(gain)
    assert f"{1.32 / speedup:.2f}" in table
    assert ("the machine was busy" in table) == busy


# --- The Train tab's curves: steps count on over the stages, kinds of text are averaged, every head is drawn.


def test_history_goes_on_counting_over_stages_and_averages_kinds():
    history = History()
    history.begin("one")
    history.add(1, {"loss": 9.0, "loss/1": 4.0, "loss/2": 5.0, "grad_norm": 1.0})
    history.add(2, {"loss": 8.0, "loss/1": 3.0, "loss/2": 4.0})
    history.begin("two")
    heldout = {
        f"heldout/{kind}/{name}/{head}": value
        for kind, value in (("a", 0.2), ("b", 0.4)) for name in ("top1", "top5") for head in (1, 2)
    }  # fmt: skip
    history.add(1, {"loss": 1.0, "loss/base": 0.5, "loss/1": 2.0, "loss/2": 3.0} | heldout)
    curves = history.curves()
    assert curves.losses[-1] == LossPoint(3, (2.0, 3.0), 0.5)
    assert curves.stages == ((0, "one"), (2, "two"))
    assert curves.scores[0].step == 3
    assert curves.scores[0].top1 == pytest.approx((0.3, 0.3))


@pytest.mark.parametrize("dark", [False, True])
def test_the_figures_draw_every_head(dark):
    empty = all_curves(Curves(), dark)
    assert all(len(figure.data) == 0 and figure.layout.annotations for figure in empty)
    losses = tuple(LossPoint(i, (9.0 / i, 10.0 / i), 1.0 if i > 500 else None) for i in range(1, 1001))
    scores = tuple(ScorePoint(i, (i / 2000, 0.1), (i / 1000, 0.3)) for i in (250, 1000))
    loss, top1, top5 = all_curves(Curves(losses, scores, ((0, "one"), (500, "two"))), dark)
    assert [trace.name for trace in loss.data] == ["head 1", "head 2", "the model itself"]
    assert max(len(trace.x) for trace in loss.data) <= 120
    assert loss.data[0].x[-1] == 1000
    assert list(top1.data[0].y) == [0.125, 0.5]
    assert list(top5.data[1].y) == [0.3, 0.3]
