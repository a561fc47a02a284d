"""Charts of what to expect on a machine: methods by tokens and time per step, and a step by its nodes."""

from __future__ import annotations

import plotly.graph_objects as go

from medusa_core.experiments.expect import STEP
from medusa_core.experiments.record import ExperimentRecord
from medusa_core.replay.colours import palette
from ui.figures.method_speeds import MethodSpeed, tokens_against_time
from ui.figures.palette import plotly_template

HEIGHT = 460


def expectation_of_record(record: ExperimentRecord, dark: bool) -> list[tuple[str, go.Figure]]:
    """Both charts with their titles."""
    methods = [
        MethodSpeed(row.series, row.tokens_per_step.mean, row.step_ms)
        for row in record.rows
        if row.series != STEP
    ]
    steps = [row for row in record.rows if row.series == STEP]
    colour = palette(dark).accepted
    figure = go.Figure(layout={"template": plotly_template(dark), "height": HEIGHT})
    figure.add_scatter(
        x=[row.x for row in steps], y=[row.step_ms for row in steps], mode="lines+markers",
        line={"color": colour, "width": 2}, marker={"size": 8, "color": colour},
        customdata=[[row.tokens_per_step.mean, row.overhead] for row in steps],
        hovertemplate="%{x} nodes: %{y:.2f} ms, %{customdata[0]:.2f} tokens per step<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(
        title_text="nodes of the tree, the root included", type="log", tickvals=[row.x for row in steps]
    )
    figure.update_yaxes(title_text="milliseconds of a step", rangemode="tozero")
    return [
        ("Tokens per step against time per step", tokens_against_time(methods, dark)),
        ("Milliseconds of a step by nodes", figure),
    ]
