"""Charts of long texts: speedup and the time of a step by the length of the text, beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from medusa_core.experiments.record import ExperimentRecord, Row
from medusa_core.experiments.tokenswift import PENALTY, PLAIN
from medusa_core.replay.colours import palette
from ui.figures.method_speeds import series_title
from ui.figures.palette import plotly_template

HEIGHT = 360
TICKS = [100, 300, 1000, 3000, 10_000, 30_000, 100_000]
SPEEDUP, STEP = "Speedup by the length of the text", "Time of a step by the length of the text"


def long_texts_of_record(record: ExperimentRecord, dark: bool) -> list[tuple[str, go.Figure]]:
    """Titles and figures: what was measured here as lines, the paper's figures as single points."""
    colours = palette(dark)
    layout = {"template": plotly_template(dark), "height": HEIGHT}
    gain, time = go.Figure(layout=layout), go.Figure(layout=layout)
    for series in dict.fromkeys(row.series for row in record.rows):
        rows = sorted((row for row in record.rows if row.series == series), key=lambda row: row.x or 0.0)
        drafts = not series.startswith(PLAIN)
        style = {
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
                customdata=_alphas(rows),
                hovertemplate="%{x} tokens: %{y:.2f}×, %{customdata}<extra></extra>",
                **_places(rows), **style,
            )  # fmt: skip
        time.add_scatter(
            y=[row.step_ms for row in rows],
            hovertemplate="%{x} tokens: %{y:.2f} ms<extra></extra>",
            **_places(rows), **style,
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


def _places(rows: Sequence[Row]) -> dict[str, list[float | None]]:
    return {"x": [row.x for row in rows]}


def _alphas(rows: Sequence[Row]) -> list[str]:
    return ["" if row.alpha is None else f"α = {row.alpha:.2f}" for row in rows]
