"""The charts: right numbers from a trace, plain chart types, no torch behind them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from trace_factory import make_trace

from ui.figures import charts
from ui.figures.run_counts import RunCounts

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
    root, drafts, mean = charts.accepted_lengths(trace).data
    assert sum(root.y) + sum(drafts.y) == trace["output"]["new_tokens"]
    assert mean.y[0] == pytest.approx(trace["output"]["tokens_per_step"])


def test_phases_add_up_to_the_total(trace):
    columns = charts.phase_columns([step["ms"] for step in trace["steps"]])
    for i, step in enumerate(trace["steps"]):
        assert sum(column[i] for column in columns.values()) == pytest.approx(step["ms"]["total"])
    assert all(value >= 0 for column in columns.values() for value in column)


def test_missing_phases_count_as_nothing():
    columns = charts.phase_columns([{"verify": 3.0, "total": 5.0}])
    assert columns == {"propose": [0.0], "verify": [3.0], "accept": [0.0], "commit": [0.0], "other": [2.0]}


def test_depth_counts_against_a_slow_count(trace):
    for count in RunCounts.of(trace).depths:
        offered = [s for s in trace["steps"] if any(n["depth"] == count.depth for n in s["nodes"])]
        assert count.offered == len(offered)
        assert count.reached == sum(
            any(n["depth"] == count.depth and n["id"] in s["path"] for n in s["nodes"]) for s in offered
        )


def test_rank_counts_against_a_slow_count(trace):
    for count in RunCounts.of(trace).ranks:
        nodes = [
            (node, step)
            for step in trace["steps"]
            for node in step["nodes"]
            if node["depth"] == count.depth and node["origin"]["rank"] == count.rank
        ]
        assert count.accepted == sum(node["id"] in step["path"] for node, step in nodes)
        assert count.judged == sum(node["parent"] in step["path"] for node, step in nodes)
        assert count.accepted <= count.judged <= len(nodes)


def test_plain_decoding_says_why_there_is_nothing_to_show(plain):
    for figure in charts.all_charts(plain)[2:]:
        assert not figure.data
        assert "plain decoding" in figure.layout.annotations[0].text


def test_figures_need_neither_torch_nor_gradio():
    code = "import sys, ui.figures.charts; sys.exit(bool({'torch', 'gradio'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_rows_are_called_heads_only_where_the_drafter_has_some(trace):
    by_head, by_rank = charts.all_charts(trace)[2:]
    assert list(by_head.data[0].x) == list(by_rank.data[0].y) == ["head 1", "head 2", "head 3"]
    for step in trace["steps"]:
        for node in step["nodes"]:
            node["origin"]["head"] = None
    by_depth, by_rank = charts.all_charts(trace)[2:]
    assert list(by_depth.data[0].x) == list(by_rank.data[0].y) == ["depth 1", "depth 2", "depth 3"]


def test_charts_of_thousands_of_steps_are_drawn_by_bins(trace):
    steps = [{**step, "index": i} for i, step in enumerate(trace["steps"] * (9000 // len(trace["steps"])))]
    long = {**trace, "steps": steps}
    root, drafts, mean = charts.accepted_lengths(long).data
    together = -(-len(steps) // 400)
    assert len(root.y) == len(drafts.y) == -(-len(steps) // together) <= 400
    assert mean.y[0] == pytest.approx(charts.accepted_lengths(trace).data[2].y[0])
    kept = [len(step["emitted"]) - 1 for step in steps[:together]]
    assert drafts.y[0] == pytest.approx(sum(kept) / together)
    assert drafts.x[0] == pytest.approx((1 + together) / 2)
    figures = charts.all_charts(long)
    for figure in figures[:2]:
        assert f"each bar is the mean of {together} steps" in figure.layout.xaxis.title.text
    assert sum(len(figure.to_json()) for figure in figures) < 200_000
