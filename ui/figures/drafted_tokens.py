"""Charts of figure 7's record: tokens per step and speedup by the tokens γ that a draft model drafts."""

from __future__ import annotations

import plotly.graph_objects as go

from medusa_core.experiments.figure7 import FORMULA
from medusa_core.experiments.record import ExperimentRecord
from medusa_core.replay.colours import palette
from ui.figures.palette import plotly_template

HEIGHT = 360


def by_gamma(record: ExperimentRecord, dark: bool) -> list[tuple[str, go.Figure]]:
    """Each draft model as a line, and its formula as a dashed one."""
    colours = palette(dark)
    shades = (colours.accepted, colours.rejected, colours.root, colours.selected)
    rows = [row for row in record.rows if row.x is not None]
    models = list(dict.fromkeys(row.series.removesuffix(FORMULA) for row in rows))
    charts = []
    for title in ("Tokens per step", "Speedup"):
        figure = go.Figure(layout={"template": plotly_template(dark), "height": HEIGHT})
        for series in dict.fromkeys(row.series for row in rows):
            model = series.removesuffix(FORMULA)
            own = sorted((row for row in rows if row.series == series), key=lambda row: row.x or 0)
            speedups = [row.speedup.median for row in own if row.speedup]
            colour = shades[models.index(model) % len(shades)]
            figure.add_scatter(
                x=[row.x for row in own], y=speedups if charts else [row.tokens_per_step.mean for row in own], name=series,
                mode="lines+markers" if series == model else "lines",
                line={"color": colour, "dash": "solid" if series == model else "dash", "width": 2},
                hovertemplate=f"γ = %{{x}}, {series}: %{{y:.2f}}<extra></extra>",
            )  # fmt: skip
        figure.update_xaxes(title_text="γ, tokens drafted in a step", dtick=1)
        figure.update_yaxes(title_text=title.lower(), rangemode="tozero")
        charts.append((title, figure))
    return charts
