"""What a step takes, phase by phase and against its limit, and how that changes along a sweep.

Pure functions from plain records to plotly figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from medusa_core.drafters import title_of
from medusa_core.trace.replay.colours import PHASES, Palette, palette
from ui.figures.charts import PHASE_HELP
from ui.figures.method_speeds import method_mark
from ui.figures.palette import empty_figure, new_figure, ranges

BARS_HEIGHT, CURVES_HEIGHT = 320, 380
HALF = 0.36  # half a bar's height; the middles of two bars are 1 apart
AXES = {  # axis title by swept quantity
    "nodes": "nodes of the tree, the root included",
    "context": "tokens of the text",
    "batch": "texts at once",
    "dtype": "dtype of the weights",
}


@dataclass(frozen=True)
class StepTime:
    """A method's step, and its ``phases`` in the order of PHASES, in ms; no limit where none is known.

    All are medians, so the phases need not add up to the step exactly.
    """

    name: str
    ms: float
    phases: tuple[float, ...]
    limit_ms: float | None = None
    limit_words: str = ""  # basis of the limit


@dataclass(frozen=True)
class SweepPoint:
    """A method's step at one value; low and high are those of the rounds, None where there is no spread."""

    name: str
    value: int | str
    step_ms: float
    low: float | None = None
    high: float | None = None
    limit_ms: float | None = None
    words: str = ""  # the other exact numbers


def step_bars(steps: Sequence[StepTime], dark: bool) -> go.Figure:
    """A bar for each method, divided by phase, with its limit as a line across it."""
    if not steps:
        return empty_figure(dark, "nothing measured yet")
    colours = palette(dark)
    figure = new_figure(dark, height=BARS_HEIGHT, barmode="stack", bargap=2 * (0.5 - HALF))
    places = list(range(len(steps)))
    names = [title_of(step.name) for step in steps]
    for number, (phase, colour) in enumerate(zip(PHASES, colours.phases, strict=True)):
        values = [step.phases[number] for step in steps]
        shares = [value / step.ms for value, step in zip(values, steps, strict=True)]
        figure.add_bar(
            y=places, x=values, orientation="h", name=phase, marker_color=colour,
            customdata=list(zip(names, shares, strict=True)),
            hovertemplate=f"%{{customdata[0]}}, {phase}: %{{x:.3f}} ms, %{{customdata[1]:.0%}} of the step"
            f"<br>{PHASE_HELP[phase]}<extra></extra>",
        )  # fmt: skip
    _add_limits(figure, steps, colours)
    longest = max([step.ms for step in steps] + [step.limit_ms or 0.0 for step in steps])
    figure.update_xaxes(title_text="milliseconds of one step", range=[0, 1.04 * longest])
    labels = [f"{name}<br>{step.ms:.2f} ms" for name, step in zip(names, steps, strict=True)]
    figure.update_yaxes(
        tickvals=places, ticktext=labels, range=[len(steps) - 0.5, -0.5], showgrid=False, ticks=""
    )
    return figure.update_layout(legend={"y": -0.34})


def _add_limits(figure: go.Figure, steps: Sequence[StepTime], colours: Palette) -> None:
    """A line across each bar, a little longer than the bar is high."""
    x: list[float | None] = []
    y: list[float | None] = []
    said: list[str] = []
    for place, step in enumerate(steps):
        if step.limit_ms is not None:
            x += [step.limit_ms] * 3 + [None]
            y += [place - HALF - 0.06, place, place + HALF + 0.06, None]
            title = title_of(step.name)
            said += [f"{title}: at least {step.limit_ms:.3f} ms<br>{step.limit_words}"] * 3 + [""]
    if x:
        figure.add_scatter(
            x=x, y=y, mode="lines", name="limit", line={"color": colours.text, "width": 3},
            hovertext=said, hoverinfo="text",
        )  # fmt: skip


def sweep_curves(sweep: str, points: Sequence[SweepPoint], dark: bool) -> go.Figure:
    """Milliseconds of a step along what is swept, a curve a method; error bars show the rounds' spread."""
    figure = new_figure(dark, height=CURVES_HEIGHT)
    for name in dict.fromkeys(point.name for point in points):
        _add_curve(figure, [point for point in points if point.name == name], dark)
    figure.update_yaxes(title_text="milliseconds a step", rangemode="tozero")
    values = list(dict.fromkeys(point.value for point in points))
    if all(isinstance(value, int) for value in values):
        figure.update_xaxes(type="log", tickvals=values, ticktext=[f"{value:,}" for value in values])
    else:
        figure.update_xaxes(type="category")
    figure.update_xaxes(title_text=AXES[sweep])
    return figure


def _add_curve(figure: go.Figure, points: Sequence[SweepPoint], dark: bool) -> None:
    """A method, with its mark in Methods."""
    name = points[0].name
    symbol, colour = method_mark(name, dark)
    values = [point.value for point in points]
    rounds = [(one.low or one.step_ms, one.step_ms, one.high or one.step_ms) for one in points]
    figure.add_scatter(
        x=values, y=[point.step_ms for point in points], mode="lines+markers", name=title_of(name),
        line={"color": colour, "width": 2},
        marker={"symbol": symbol, "size": 9, "color": colour},
        error_y=ranges(rounds, colour, 1.5) if any(point.low for point in points) else None,
        customdata=[point.words for point in points],
        hovertemplate=f"{title_of(name)}, %{{x}}: %{{y:.3f}} ms%{{customdata}}<extra></extra>",
    )  # fmt: skip
    if any(point.limit_ms is not None for point in points):
        figure.add_scatter(
            x=values, y=[point.limit_ms for point in points], mode="lines+markers",
            name=f"{title_of(name)}: limit", line={"color": colour, "width": 1.5, "dash": "dot"},
            marker={"symbol": "line-ew-open", "size": 9, "color": colour},
            hovertemplate=f"{title_of(name)}, %{{x}}: at least %{{y:.3f}} ms<extra></extra>",
        )  # fmt: skip
