"""Charts of the Trees tab: the heads' accuracies, and trees of every size in tokens, time and speed.

Pure functions from plain records to plotly figures; sizes count the root. Paper §2.3.3 and figure 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import plotly.graph_objects as go

from medusa_core.errors import counted
from medusa_core.trace.replay.colours import Palette, palette
from medusa_core.trees.baselines import CartesianTree
from medusa_core.trees.budget import Budget, LatencyPoint, best_budget
from ui.figures.palette import empty_figure, new_figure, ranges

HEIGHT = 340
_figure = partial(new_figure, height=HEIGHT)
NOT_MEASURED = "nobody has timed steps on this machine yet:<br>press “Measure on this machine”"
NODES = "nodes of the tree, the root included"


@dataclass(frozen=True)
class Growth:
    """Expected tokens per step by size: place i of a curve is a tree of i + 1 nodes."""

    optimised: Sequence[float]
    cartesian: Sequence[CartesianTree]
    random: Sequence[Sequence[float]]  # one curve a seed


def accuracy_heatmap(accuracies: Sequence[Sequence[float]], dark: bool) -> go.Figure:
    """Heads by rank: how often the guess of that rank was right."""
    width, colours = max(map(len, accuracies)), palette(dark)
    figure = _figure(dark)
    figure.add_heatmap(
        z=[[*row, *[None] * (width - len(row))] for row in accuracies],
        x=[str(rank + 1) for rank in range(width)],
        y=[f"head {head}" for head in range(1, len(accuracies) + 1)],
        text=[[f"{share:.{0 if share >= 0.0095 else 1}%}" for share in row] for row in accuracies],
        texttemplate="%{text}",
        textfont_color=colours.text,
        hovertemplate="%{y}, guess %{x}: right at %{z:.1%} of the positions<extra></extra>",
        colorscale=colours.scale,
        zmin=0,
        xgap=2,
        ygap=2,
        showscale=False,  # every cell says its number
    )
    figure.update_xaxes(
        title_text="rank of the guess, 1 is the head's favourite", type="category", showgrid=False
    )
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure


def tokens_by_size(growth: Growth, nodes: int, measured: Sequence[LatencyPoint], dark: bool) -> go.Figure:
    """Expected tokens per step of optimised, cartesian and random trees (paper figure 4a)."""
    colours = palette(dark)
    figure = _figure(dark)
    _add_random(figure, growth.random, colours)
    if growth.cartesian:
        figure.add_scatter(
            x=[tree.nodes for tree in growth.cartesian],
            y=[tree.expected_length for tree in growth.cartesian],
            customdata=["×".join(map(str, tree.widths)) for tree in growth.cartesian],
            name="best cartesian tree", mode="lines+markers",
            line={"color": colours.rejected, "dash": "dash", "shape": "hv", "width": 2},
            marker={"symbol": "square", "size": 6},
            hovertemplate="cartesian %{customdata}: %{x} nodes, %{y:.2f} tokens a step<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=list(range(1, len(growth.optimised) + 1)), y=list(growth.optimised), name="optimised tree",
        mode="lines", line={"color": colours.accepted, "width": 3},
        hovertemplate="optimised: %{x} nodes, %{y:.2f} tokens a step<extra></extra>",
    )  # fmt: skip
    kept = [point for point in measured if point.tokens_per_step]
    if kept:
        figure.add_scatter(
            x=[point.nodes for point in kept], y=[point.tokens_per_step for point in kept],
            name="optimised, counted while measuring", mode="markers", marker=_diamond(colours),
            hovertemplate="counted: %{x} nodes, %{y:.2f} tokens a step<extra></extra>",
        )  # fmt: skip
    figure.update_yaxes(title_text="tokens per step")
    return _by_size(figure, nodes, colours)


def time_by_size(
    measured: Sequence[LatencyPoint], speeds: Sequence[Budget], nodes: int, dark: bool
) -> go.Figure:
    """Measured milliseconds of a step, and the rising line that gives the sizes in between."""
    if not measured:
        return empty_figure(dark, NOT_MEASURED)
    colours = palette(dark)
    figure = _figure(dark)
    figure.add_scatter(
        x=[speed.nodes for speed in speeds], y=[speed.step_ms for speed in speeds],
        name="rising line through the medians", mode="lines", line={"color": colours.accepted, "width": 2},
        hovertemplate="%{x} nodes: about %{y:.1f} ms a step<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=[point.nodes for point in measured],
        y=[point.step_ms for point in measured],
        error_y=ranges(list(map(_rounds, measured)), colours.muted),
        name="measured median, fastest to slowest round",
        mode="markers",
        marker=_diamond(colours),
        customdata=[_phases(point) for point in measured],
        hovertemplate="%{x} nodes: %{y:.1f} ms a step<br>%{customdata}<extra></extra>",
    )
    figure.update_yaxes(title_text="milliseconds a step", rangemode="tozero")
    return _by_size(figure, nodes, colours)


def _rounds(point: LatencyPoint) -> tuple[float, float, float]:
    """Milliseconds of the fastest round, the median and those of the slowest one."""
    times = (*(point.step_ms_range or ()), point.step_ms)
    return min(times), point.step_ms, max(times)


def _phases(point: LatencyPoint) -> str:
    phases = ((name, getattr(point, name)) for name in ("propose", "verify", "accept", "commit"))
    return ", ".join(f"{name} {ms:.1f}" for name, ms in phases if ms is not None)


def speed_by_size(
    measured: Sequence[LatencyPoint], speeds: Sequence[Budget], nodes: int, dark: bool
) -> go.Figure:
    """Expected tokens per second with the best size marked (paper figure 4b); one node is plain decoding."""
    if not speeds:
        return empty_figure(dark, NOT_MEASURED)
    colours = palette(dark)
    figure = _figure(dark)
    figure.add_scatter(
        x=[speed.nodes for speed in speeds], y=[speed.tokens_per_second for speed in speeds],
        name="expected", mode="lines", line={"color": colours.accepted, "width": 3},
        hovertemplate="%{x} nodes: %{y:,.0f} tokens/s expected<extra></extra>",
    )  # fmt: skip
    kept = {
        point.nodes: 1000 * point.tokens_per_step / point.step_ms
        for point in measured
        if point.tokens_per_step
    }
    figure.add_scatter(
        x=list(kept),
        y=list(kept.values()),
        name="measured", mode="markers", marker=_diamond(colours),
        hovertemplate="%{x} nodes: %{y:,.0f} tokens/s measured<extra></extra>",
    )  # fmt: skip
    if speeds[0].nodes == 1:
        figure.add_scatter(
            x=[1, speeds[-1].nodes], y=[speeds[0].tokens_per_second] * 2, mode="lines",
            name=f"plain decoding, {speeds[0].tokens_per_second:,.0f}",
            line={"color": colours.muted, "dash": "dot", "width": 1.5}, hoverinfo="skip",
        )  # fmt: skip
    best = best_budget(speeds)
    figure.add_scatter(
        x=[best.nodes], y=[best.tokens_per_second], mode="markers",
        name=f"best: {counted(best.nodes, 'node')}, {best.tokens_per_second:,.0f}",
        marker={"symbol": "star", "size": 17, "color": colours.selected,
                "line": {"color": colours.text, "width": 1.5}},
        hovertemplate="best: %{x} nodes, %{y:,.0f} tokens/s expected<extra></extra>",
    )  # fmt: skip
    figure.update_yaxes(title_text="tokens per second", rangemode="tozero")
    return _by_size(figure, nodes, colours)


def _add_random(figure: go.Figure, curves: Sequence[Sequence[float]], colours: Palette) -> None:
    """The band from the worst to the best random tree, and their mean."""
    columns = list(zip(*curves, strict=False))
    if not columns:
        return
    sizes = list(range(1, len(columns) + 1))
    red, green, blue = (int(colours.proposed[i : i + 2], 16) for i in (1, 3, 5))
    edge = {"mode": "lines", "line": {"width": 0}, "showlegend": False, "hoverinfo": "skip"}
    figure.add_scatter(x=sizes, y=list(map(max, columns)), **edge)
    figure.add_scatter(
        x=sizes, y=list(map(min, columns)), fill="tonexty", fillcolor=f"rgba({red},{green},{blue},0.18)",
        **edge,
    )  # fmt: skip
    figure.add_scatter(
        x=sizes, y=[sum(column) / len(column) for column in columns],
        name=f"{len(curves)} random trees, mean and range", mode="lines",
        line={"color": colours.proposed, "dash": "dot", "width": 2},
        hovertemplate="random: %{x} nodes, %{y:.2f} tokens a step on average<extra></extra>",
    )  # fmt: skip


def _by_size(figure: go.Figure, nodes: int, colours: Palette) -> go.Figure:
    """The figure with the sizes of trees as its x axis and a mark at that of the tree on screen."""
    figure.add_vline(
        x=nodes, line={"color": colours.text, "width": 1, "dash": "dash"}, annotation_position="top",
        annotation_text=counted(nodes, "node"), annotation_font={"size": 11, "color": colours.text},
    )  # fmt: skip
    return figure.update_xaxes(title_text=NODES, rangemode="tozero")


def _diamond(colours: Palette) -> dict[str, object]:
    return {"symbol": "diamond", "size": 9, "color": colours.root}
