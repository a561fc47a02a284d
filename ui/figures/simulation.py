"""Charts of Medusa's simulated gain (paper figures 21 to 23), from numbers or from an experiment's record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

import plotly.graph_objects as go

from medusa_core.experiments.record import ExperimentRecord, Row
from medusa_core.experiments.spec_bench import by_series
from medusa_core.trace.replay.colours import palette
from ui.figures.palette import new_figure, plotly_template

HEIGHT = 340
CANDIDATES = "candidates, the root included"
TICKS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
BEST_OF_THE_PAPER = 64


@dataclass(frozen=True)
class Line:
    """One curve: candidates on the x axis."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def lines_chart(lines: Sequence[Line], title: str, dark: bool, *, paper: bool = False) -> go.Figure:
    """Curves over candidates, with plain decoding at 1; ``paper`` marks the paper's best count."""
    colours = palette(dark)
    shades = [colours.accepted, colours.rejected, colours.root, colours.selected, colours.proposed]
    shades += [colours.phases[2], colours.text, colours.focus]  # The shades that differ most come first.
    # Built in one go, which plotly checks much faster than one change after another.
    data = [
        {
            "type": "scatter", "x": list(line.x), "y": list(line.y), "name": line.name, "mode": "lines",
            "line": {"color": colour, "width": 2.5, "dash": DASHES[place % len(DASHES)]},
            "hovertemplate": f"{line.name}: %{{x}} → %{{y:.2f}}<extra></extra>",
        }
        for place, (line, colour) in enumerate(zip(lines, cycle(shades), strict=False))
    ]  # fmt: skip
    layout: dict[str, object] = {
        "template": plotly_template(dark),
        "height": HEIGHT,
        "xaxis": {"title": {"text": CANDIDATES}, "type": "log", "tickvals": TICKS},
        "yaxis": {"title": {"text": title}, "rangemode": "tozero"},
    }
    shapes = [_straight(colours.muted, "dot", xref="paper", x0=0, x1=1, y0=1, y1=1)]
    if paper:
        ends = {"x0": BEST_OF_THE_PAPER, "x1": BEST_OF_THE_PAPER, "y0": 0, "y1": 1}
        shapes.append(_straight(colours.rejected, "dash", yref="paper", **ends))
        layout["annotations"] = [
            {
                "x": math.log10(BEST_OF_THE_PAPER), "y": 1, "yref": "paper", "yanchor": "bottom",
                "text": f"paper: best near {BEST_OF_THE_PAPER}", "showarrow": False,
                "font": {"size": 11, "color": colours.text},
            }
        ]  # fmt: skip
    return go.Figure(data=data, layout=layout | {"shapes": shapes})


def _straight(colour: str, dash: str, **place: object) -> dict[str, object]:
    return {"type": "line", "line": {"color": colour, "dash": dash, "width": 1.5}, **place}


def map_chart(
    batches: Sequence[int], candidates: Sequence[int], speedups: Sequence[Sequence[float]], dark: bool
) -> go.Figure:
    """Speedup by batch (rows) and candidates (columns): above 1 Medusa pays, below it costs."""
    colours = palette(dark)
    figure = new_figure(dark, height=HEIGHT)
    # Half of the full colours, so that the numbers on them can be read.
    ends = [_mixed(colour, colours.paper) for colour in (colours.rejected, colours.accepted)]
    scale = [[0.0, ends[0]], [0.5, colours.paper], [1.0, ends[1]]]
    figure.add_heatmap(
        z=[list(row) for row in speedups], x=[str(count) for count in candidates],
        y=[str(batch) for batch in batches], text=[[f"{value:.1f}" for value in row] for row in speedups],
        texttemplate="%{text}", textfont={"size": 10}, colorscale=scale, zmid=1, zmin=0, zmax=2, xgap=1,
        ygap=1, hovertemplate="batch %{y}, %{x} candidates: %{z:.2f} times plain decoding<extra></extra>",
        colorbar={"thickness": 10, "outlinewidth": 0},
    )  # fmt: skip
    figure.update_xaxes(title_text=CANDIDATES, type="category", showgrid=False)
    figure.update_yaxes(title_text="batch", type="category", showgrid=False)
    return figure


def gain_of_record(record: ExperimentRecord, dark: bool) -> list[tuple[str, go.Figure]]:
    """Figure 21: tokens per step and the speedups, and the latency they are divided by."""
    series = by_series(record.rows)
    first = next(iter(series.values()))
    kept = Line("tokens per step", [row.x or 1 for row in first], [row.tokens_per_step.mean for row in first])
    speedups = [Line(f"speedup, {name}", *_speedups(rows)) for name, rows in series.items()]
    latencies = [
        Line(name, [row.x or 1 for row in rows], [row.overhead or 0 for row in rows])
        for name, rows in series.items()
    ]
    return [
        ("Tokens per step and speedup", lines_chart([kept, *speedups], "times plain", dark, paper=True)),
        ("Time of a step, plain decoding is 1", lines_chart(latencies, "times plain", dark)),
    ]


def speedups_of_record(record: ExperimentRecord, dark: bool) -> list[tuple[str, go.Figure]]:
    """Figures 22 and 23: one curve a batch or a length."""
    lines = [Line(name, *_speedups(rows)) for name, rows in by_series(record.rows).items()]
    return [("Simulated speedup", lines_chart(lines, "speedup", dark))]


def _speedups(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    return [row.x or 1 for row in rows], [row.speedup.median if row.speedup else 0 for row in rows]


def _mixed(colour: str, ground: str) -> str:
    """The colour half way to the ground."""
    parts = [(int(colour[i : i + 2], 16) + int(ground[i : i + 2], 16)) // 2 for i in (1, 3, 5)]
    return f"rgb({parts[0]},{parts[1]},{parts[2]})"
