"""Charts of stored records: draft models by γ, EAGLE-3's training, and what a change does to the loss."""

from __future__ import annotations

from functools import partial

import plotly.graph_objects as go

from medusa_core.experiments.figure7 import FORMULA
from medusa_core.experiments.record import ExperimentRecord
from medusa_core.experiments.settings import PLAIN
from medusa_core.experiments.spec_bench import by_series
from medusa_core.experiments.tokenswift import PENALTY
from medusa_core.trace.replay.colours import palette
from ui.figures.method_speeds import series_title
from ui.figures.palette import errors, new_figure

HEIGHT = 360
_figure = partial(new_figure, height=HEIGHT)
TICKS = [100, 300, 1000, 3000, 10_000, 30_000, 100_000]
SPEEDUP, STEP = "Speedup by the length of the text", "Time of a step by the length of the text"


def by_gamma(record: ExperimentRecord, dark: bool) -> list[tuple[str, go.Figure]]:
    """Each draft model as a line, and its formula as a dashed one."""
    colours = palette(dark)
    shades = (colours.accepted, colours.rejected, colours.root, colours.selected)
    lines = by_series(row for row in record.rows if row.x is not None)
    models = list(dict.fromkeys(series.removesuffix(FORMULA) for series in lines))
    charts: list[tuple[str, go.Figure]] = []
    for title, value in (
        ("Tokens per step", lambda row: row.tokens_per_step.mean),
        ("Speedup", lambda row: row.speedup and row.speedup.median),
    ):
        figure = _figure(dark)
        for series, rows in lines.items():
            model = series.removesuffix(FORMULA)
            colour = shades[models.index(model) % len(shades)]
            figure.add_scatter(
                x=[row.x for row in rows], y=list(map(value, rows)), name=series,
                mode="lines+markers" if series == model else "lines",
                line={"color": colour, "dash": "solid" if series == model else "dash", "width": 2},
                hovertemplate=f"γ = %{{x}}, {series}: %{{y:.2f}}<extra></extra>",
            )  # fmt: skip
        figure.update_xaxes(title_text="γ, tokens drafted in a step", dtick=1)
        figure.update_yaxes(title_text=title.lower(), rangemode="tozero")
        charts.append((title, figure))
    return charts


def by_training(record: ExperimentRecord, dark: bool) -> list[tuple[str, go.Figure]]:
    """Tokens per step by the text a layer has learned from, and its right guesses by step."""
    colours = palette(dark)
    kept, right = _figure(dark), _figure(dark)
    parts = [row for row in record.rows if row.x is not None]
    kept.add_scatter(
        x=[row.x for row in parts], y=[row.tokens_per_step.mean for row in parts], mode="lines+markers",
        error_y={"type": "data", "array": [row.tokens_per_step.standard_error or 0 for row in parts]},
        line={"color": colours.accepted, "width": 2},
        hovertemplate="%{x:,} tokens: %{y:.2f} tokens per step<extra></extra>",
    )  # fmt: skip
    kept.update_xaxes(
        title_text="training tokens", type="log", tickvals=[row.x for row in parts], tickformat=","
    )
    kept.update_yaxes(title_text="tokens per step")
    whole = max(parts, key=lambda row: row.x or 0)
    lines = [whole, *(row for row in record.rows if row.x is None and row.right_by_step)]
    names = ("accepted", "rejected", "root", "selected", "proposed", "text")
    shades = [getattr(colours, name) for name in names]
    for row, colour in zip(lines, shades, strict=False):
        shares = row.right_by_step or []
        right.add_scatter(
            x=list(range(1, len(shares) + 1)), y=shares, name=row.label, mode="lines+markers",
            line={"color": colour, "width": 2, "dash": "solid" if row is whole else "dash"},
            hovertemplate=f"step %{{x}}, {row.label}: %{{y:.0%}}<extra></extra>",
        )  # fmt: skip
    right.update_xaxes(title_text="step of drafting", dtick=1)
    right.update_yaxes(title_text="right first guesses", tickformat=".0%", rangemode="tozero")
    return [("Tokens per step by training tokens", kept), ("Right guesses by step", right)]


def changes_of_loss(record: ExperimentRecord, dark: bool) -> tuple[str, go.Figure]:
    """How each row changes the base's held-out loss."""
    colours = palette(dark)
    rows = [(row.label, row.quality, row.quality_change) for row in record.rows]
    changed = [(label, quality, change) for label, quality, change in rows if quality and change]
    loss = _figure(dark, showlegend=False)
    before = next((row.quality.mean for row in record.rows if row.quality), 0.0)
    loss.add_scatter(
        x=[change.mean for _, _, change in changed], y=[label for label, _, _ in changed],
        mode="markers+text",
        text=[f"{change.mean:+.3f}" for _, _, change in changed], textposition="top center",
        marker={"symbol": "diamond", "size": 11, "color": colours.accepted},
        error_x=errors([change.standard_error for _, _, change in changed], colours.accepted),
        customdata=[quality.mean for _, quality, _ in changed], cliponaxis=False,
        hovertemplate="%{y}: loss %{customdata:.3f}<extra></extra>",
    )  # fmt: skip
    loss.update_xaxes(title_text="nats a token; right is worse")
    loss.update_yaxes(range=[len(rows) - 0.5, -0.7], showgrid=False, ticks="", ticksuffix=" ")
    loss.add_vline(x=0, line={"color": colours.text, "dash": "dot", "width": 1})
    return f"Change of the base's held-out loss from {before:.3f}", loss


def long_texts_of_record(record: ExperimentRecord, dark: bool) -> list[tuple[str, go.Figure]]:
    """Titles and charts: what was measured here as lines, the paper's figures as single points."""
    colours = palette(dark)
    gain, time = _figure(dark), _figure(dark)
    for series, rows in by_series(record.rows).items():
        drafts = not series.startswith(PLAIN)
        style = {
            "x": [row.x for row in rows],
            "name": series_title(series),
            "mode": "lines+markers",
            "line": {
                "color": colours.accepted if drafts else colours.root,
                "dash": "dash" if series.endswith(PENALTY) else "solid",
                "width": 2,
            },
            "marker": {"size": 8, "symbol": "circle" if drafts else "square"},
        }
        if drafts:
            gain.add_scatter(
                y=[row.speedup.median if row.speedup else None for row in rows],
                customdata=["" if row.alpha is None else f"α = {row.alpha:.2f}" for row in rows],
                hovertemplate="%{x} tokens: %{y:.2f}×, %{customdata}<extra></extra>",
                **style,
            )  # fmt: skip
        time.add_scatter(
            y=[row.step_ms for row in rows],
            hovertemplate="%{x} tokens: %{y:.2f} ms<extra></extra>",
            **style,
        )  # fmt: skip
    theirs = [row for row in record.paper.rows if row.x is not None and row.speedup is not None]
    gain.add_scatter(
        x=[row.x for row in theirs], y=[row.speedup for row in theirs], mode="markers", name="paper",
        marker={"symbol": "x", "size": 10, "color": colours.proposed},
        text=[row.series for row in theirs],
        hovertemplate="%{text}, %{x} tokens: %{y:.2f}× in the paper<extra></extra>",
    )  # fmt: skip
    gain.add_hline(y=1, line={"color": colours.text, "dash": "dot", "width": 1})
    for figure, words in ((gain, "speedup over plain decoding"), (time, "ms a step")):
        figure.update_xaxes(title_text="tokens of the text", type="log", tickvals=TICKS)
        figure.update_yaxes(title_text=words, rangemode="tozero")
    return [(SPEEDUP, gain), (STEP, time)]
