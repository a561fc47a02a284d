"""Curves of a training run: the loss of every head, and how often its guesses are right on held-out text.

Pure functions from plain records to plotly figures. Paper §2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

import plotly.graph_objects as go

from medusa_core.trace.replay.colours import palette
from ui.figures.palette import empty_figure, new_figure

# `uirevision` keeps a zoom over the redraws of a running training.
_figure = partial(new_figure, height=320, uirevision="training")
MOST_POINTS = 120  # points of a curve: more are drawn as means of neighbours
NO_LOSS = "the loss of every head appears here,<br>step by step, once training runs"
NO_SCORES = "appears after the first check<br>on held-out text"
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "hexagon", "cross", "x", "star")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
PINK = "#CC79A7"


@dataclass(frozen=True)
class LossPoint:
    """Losses after a step, in nats: one a head, and the base's own where it is trained as well."""

    step: int
    heads: tuple[float, ...]
    base: float | None = None


@dataclass(frozen=True)
class ScorePoint:
    """How often each head's first guess, or one of its first five, is right on held-out text after a step."""

    step: int
    top1: tuple[float, ...]
    top5: tuple[float, ...]


@dataclass(frozen=True)
class Curves:
    """What a run has measured so far; ``stages`` are steps at which another stage began, with its name."""

    losses: tuple[LossPoint, ...] = ()
    scores: tuple[ScorePoint, ...] = ()
    stages: tuple[tuple[int, str], ...] = ()


def rounded(curves: Curves) -> Curves:
    """Curves reduced to the points that are drawn and the digits that are seen: small enough for a record."""

    def short(values: Sequence[float]) -> tuple[float, ...]:
        return tuple(round(value, 4) for value in values)

    losses = [
        replace(point, heads=short(point.heads), base=None if point.base is None else round(point.base, 4))
        for point in _thinned(curves.losses)
    ]
    scores = [replace(point, top1=short(point.top1), top5=short(point.top5)) for point in curves.scores]
    return Curves(tuple(losses), tuple(scores), curves.stages)


def loss_curves(curves: Curves, dark: bool) -> go.Figure:
    """Training loss of every head by step; that of the base, dotted, where the base is trained too."""
    if not curves.losses:
        return empty_figure(dark, NO_LOSS)
    points = _thinned(curves.losses)
    steps = [point.step for point in points]
    figure = _figure(dark)
    for head, values in enumerate(_by_head([point.heads for point in points])):
        figure.add_scatter(
            x=steps, y=values, mode="lines", name=f"head {head + 1}",
            line={"color": _colour(head, dark), "width": 2, "dash": DASHES[head % len(DASHES)]},
            hovertemplate=f"head {head + 1}, step %{{x}}: loss %{{y:.2f}}<extra></extra>",
        )  # fmt: skip
    if any(point.base is not None for point in points):
        figure.add_scatter(
            x=steps, y=[point.base for point in points], mode="lines", name="the model itself",
            line={"color": palette(dark).muted, "width": 2, "dash": "dot"},
            hovertemplate="the model itself, step %{x}: loss %{y:.3f}<extra></extra>",
        )  # fmt: skip
    figure.update_yaxes(title_text="loss, nats a token", rangemode="tozero")
    return _by_step(figure, curves.stages, dark)


def hit_curves(curves: Curves, guesses: int, dark: bool) -> go.Figure:
    """How often the right token is among each head's first ``guesses`` (1 or 5), on held-out text."""
    if not curves.scores:
        return empty_figure(dark, NO_SCORES)
    steps = [point.step for point in curves.scores]
    rows = [point.top1 if guesses == 1 else point.top5 for point in curves.scores]
    figure = _figure(dark)
    for head, values in enumerate(_by_head(rows)):
        colour = _colour(head, dark)
        figure.add_scatter(
            x=steps, y=values, mode="lines+markers", name=f"head {head + 1}",
            line={"color": colour, "width": 2},
            marker={"symbol": SYMBOLS[head % len(SYMBOLS)], "size": 8, "color": colour},
            hovertemplate=f"head {head + 1}, step %{{x}}: right %{{y:.1%}} of the time<extra></extra>",
        )  # fmt: skip
    figure.update_yaxes(title_text="right guesses", tickformat=".0%", rangemode="tozero")
    return _by_step(figure, curves.stages, dark)


def all_curves(curves: Curves, dark: bool) -> tuple[go.Figure, ...]:
    """Loss, first guess, first five guesses: in the order the page shows them."""
    return loss_curves(curves, dark), hit_curves(curves, 1, dark), hit_curves(curves, 5, dark)


def _thinned(points: Sequence[LossPoint]) -> list[LossPoint]:
    """At most ``MOST_POINTS``: neighbours of the same kind are averaged, which also calms the noise."""
    size = -(-len(points) // MOST_POINTS)
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [_mean(group) for group in groups]


def _mean(points: Sequence[LossPoint]) -> LossPoint:
    last = points[-1]
    heads = _by_head([point.heads for point in points])
    # In a group across two stages not every point has a loss of the base.
    base = [point.base for point in points if point.base is not None]
    return LossPoint(last.step, tuple(map(fmean, heads)), fmean(base) if base else None)


def _by_head(rows: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    """Values by step, transposed to values by head."""
    return list(zip(*rows, strict=True))


def _by_step(figure: go.Figure, stages: Sequence[tuple[int, str]], dark: bool) -> go.Figure:
    """The figure with the training steps as its x axis and a mark where each stage begins."""
    colours = palette(dark)
    for step, name in stages:
        figure.add_vline(
            x=step, line={"color": colours.muted, "width": 1, "dash": "dash"}, annotation_position="top",
            annotation_text=name, annotation_font={"size": 11, "color": colours.muted},
        )  # fmt: skip
    return figure.update_xaxes(title_text="training step", rangemode="tozero")


def _colour(head: int, dark: bool) -> str:
    colours = palette(dark)
    row = (colours.accepted, colours.rejected, colours.root, PINK, colours.selected, colours.proposed)
    return row[head % len(row)]
