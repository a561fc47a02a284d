"""Charts of an experiment's record, each a pure function from the record to a plotly figure.

An experiment's charts are found by its name in ``CHARTS``; one that is not there has only its table. Our
figures are blue and solid, the paper's grey and hatched. Only bars and scatters, as in ``charts``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import plotly.graph_objects as go

from medusa_core.drafters import PLUS
from medusa_core.experiments.record import ExperimentRecord, Row, Spread
from medusa_core.experiments.spec_bench import ALL, STEP, by_series
from medusa_core.trace.replay.colours import Palette, palette
from ui.figures.experiment_lines import by_gamma, by_training, changes_of_loss, long_texts_of_record
from ui.figures.method_speeds import NARROW, MethodSpeed, series_title, tokens_against_time
from ui.figures.palette import errors, new_figure, ranges
from ui.figures.simulation import TICKS, gain_of_record, speedups_of_record

HEIGHT, HEAT_ROW = 360, 26  # pixels: a chart, and a row of a heat map with a readable number
_figure = partial(new_figure, height=HEIGHT)
OURS, PAPER, PLAIN = "here", "paper", "plain decoding"
SERIES = {  # figure 4: colour of the palette, marker, line
    "optimised": ("accepted", "circle", "solid"),
    "cartesian": ("rejected", "square", "dash"),
    "random": ("proposed", "x", "dot"),
}
TYPICAL = {  # figure 5
    "typical, greedy root": ("accepted", "circle", "solid"),
    "typical, sampled root": ("rejected", "square", "dash"),
}
REFERENCES = {"greedy": ("root", "dashdot"), "random sampling": ("proposed", "dot")}


Chart = tuple[str, go.Figure]  # heading, which the page shows above, and figure
Draw = Callable[[ExperimentRecord, bool], list[Chart]]


def charts(record: ExperimentRecord, dark: bool) -> list[Chart]:
    """The charts of a record, at most two."""
    draw = CHARTS.get(record.name)
    return draw(record, dark) if draw else []


def kinds_of_text(record: ExperimentRecord, dark: bool) -> list[Chart]:
    """Figure 3: speedup, ours by kind of text, the paper's by category."""
    colours = palette(dark)
    rows = [row for row in record.rows if row.series != PLAIN and row.speedup]
    rows.sort(key=lambda row: (row.label == ALL, row.speedup.median if row.speedup else 0.0))
    theirs = {
        row.label: row.speedup
        for row in record.paper.rows
        if row.series.startswith("by category") and row.speedup
    }
    highest = max([*_highest(rows), *theirs.values()])
    ours = _figure(dark, showlegend=False)
    ours.add_bar(**_our_speedups(rows, colours))
    paper = _figure(dark, showlegend=False)
    paper.add_bar(**_their_bars(list(theirs), list(theirs.values()), colours))
    for figure in (ours, paper):
        _lying(figure, "speedup over plain decoding", highest, colours)
    return [("Speedup here", ours), ("Speedup in the paper, Vicuna-7B with Medusa-2", paper)]


def sparse_and_dense(record: ExperimentRecord, dark: bool) -> list[Chart]:
    """Figure 4: tokens per step (4a) and tokens per second (4b) against the nodes of the tree."""
    colours = palette(dark)
    accepted, speed = _figure(dark), _figure(dark)
    lines = by_series(record.rows)
    plain = next((row for row in record.rows if row.series == PLAIN), None)
    best = max(record.rows, key=lambda row: row.tokens_per_second.median)
    fastest = best.label if best is plain else f"{best.series}, {best.tree_nodes} nodes"
    for series, style in SERIES.items():
        rows = lines.get(series, [])
        if not rows:
            continue
        mode = "markers" if series == "random" else "lines+markers"
        common = {"x": [row.x for row in rows], "name": series, "mode": mode, **_style(colours, style)}
        accepted.add_scatter(
            y=[row.tokens_per_step.mean for row in rows],
            error_y=errors([row.tokens_per_step.standard_error for row in rows], getattr(colours, style[0])),
            customdata=[row.label for row in rows],
            hovertemplate="%{customdata}: %{y:.2f} tokens per step<extra></extra>",
            **common,
        )
        speed.add_scatter(
            y=[row.tokens_per_second.median for row in rows],
            error_y=_ranges([row.tokens_per_second for row in rows], getattr(colours, style[0])),
            customdata=[[row.label, row.step_ms] for row in rows],
            hovertemplate="%{customdata[0]}: %{y:,.0f} tokens/s, %{customdata[1]:.2f} ms/step<extra></extra>",
            **common,
        )
    estimate = lines.get("optimised", [])
    accepted.add_scatter(
        x=[row.x for row in estimate], y=[row.expected_tokens_per_step for row in estimate], mode="lines",
        name="estimate of the optimised", line={"color": colours.text, "dash": "longdash", "width": 1},
        hovertemplate="estimated from the accuracies: %{y:.2f}<extra></extra>",
    )  # fmt: skip
    if plain:
        _level(speed, plain.tokens_per_second.median, PLAIN, colours.root, "dashdot", _ends(record.rows))
    speed.add_scatter(
        x=[best.x], y=[best.tokens_per_second.median], mode="markers", name=f"fastest: {fastest}",
        marker={"symbol": "circle-open", "size": 18, "line": {"width": 2.5}, "color": colours.selected},
        hoverinfo="skip",
    )  # fmt: skip
    for figure, words in ((accepted, "tokens per step"), (speed, "tokens per second")):
        figure.update_xaxes(title_text="nodes of the tree, the root included", type="log", tickvals=TICKS)
        figure.update_yaxes(title_text=words, rangemode="tozero")
    return [("Tokens per step (4a)", accepted), ("Tokens per second (4b)", speed)]


def thresholds(record: ExperimentRecord, dark: bool) -> list[Chart]:
    """Figure 5: tokens per step and quality against ε, with greedy and random sampling as references."""
    colours = palette(dark)
    accepted, quality = _figure(dark), _figure(dark)
    ends, lines = _ends(record.rows), by_series(record.rows)
    for series, style in TYPICAL.items():
        rows = lines.get(series, [])
        for figure, values, words in (
            (accepted, [row.tokens_per_step for row in rows], "tokens per step"),
            (quality, [row.quality for row in rows if row.quality], "nats a token"),
        ):
            figure.add_scatter(
                x=[row.x for row in rows], y=[value.mean for value in values], name=series,
                mode="lines+markers", **_style(colours, style),
                error_y=errors([value.standard_error for value in values], getattr(colours, style[0])),
                hovertemplate=f"ε = %{{x}}, {series}: %{{y:.2f}} {words}<extra></extra>",
            )  # fmt: skip
    for row in record.rows:
        if row.series in REFERENCES:
            colour, dash = REFERENCES[row.series]
            for figure, value in ((accepted, row.tokens_per_step), (quality, row.quality)):
                if value is not None:
                    _level(figure, value.mean, row.series, getattr(colours, colour), dash, ends)
    for figure in (accepted, quality):
        figure.update_xaxes(title_text="ε, with δ = √ε")
    accepted.update_yaxes(title_text="tokens per step")
    quality.update_yaxes(title_text="log p a token under the judge")
    return [("Tokens per step", accepted), ("Quality: how likely the judge finds the text", quality)]


def recipes(record: ExperimentRecord, dark: bool) -> list[Chart]:
    """Table 2: speedup next to the paper's, and what each recipe does to the base's held-out loss."""
    return [_beside_the_paper(record, dark), changes_of_loss(record, dark)]


def techniques(record: ExperimentRecord, dark: bool) -> list[Chart]:
    """Table 3: speedup stage by stage next to the paper's, and our tokens per step."""
    colours = palette(dark)
    rows = [row for row in record.rows if row.series != PLAIN]
    tokens = _figure(dark, showlegend=False)
    values = [row.tokens_per_step for row in rows]
    spreads = errors([value.standard_error for value in values], colours.text)
    means = [value.mean for value in values]
    tokens.add_bar(**_our_bars([row.label for row in rows], means, spreads, "", colours))
    _lying(tokens, "tokens per step", max(means), colours)
    return [_beside_the_paper(record, dark), ("Tokens per step here", tokens)]


def methods_by_kind(record: ExperimentRecord, dark: bool) -> list[Chart]:
    """Speedup of every method by kind of text or temperature, and why more tokens need not be faster."""
    colours = palette(dark)
    rows = [row for row in record.rows if row.series != STEP]
    methods = list(dict.fromkeys(row.series for row in rows))
    kinds = list(dict.fromkeys(row.label for row in rows))
    speedups = {(row.series, row.label): row.speedup.median for row in rows if row.speedup}
    table = [[speedups.get((name, kind)) for kind in kinds] for name in methods]
    by_kind = _figure(dark, height=max(HEIGHT, HEAT_ROW * len(methods) + 90), margin={"t": 64, "b": 12})
    by_kind.add_heatmap(
        z=table, x=kinds, y=list(map(series_title, methods)), zmid=1.0, xgap=2, ygap=2, showscale=False,
        text=[["" if value is None else f"{value:.2f}" for value in row] for row in table],
        texttemplate="%{text}", textfont={"size": 13, "color": colours.text},
        colorscale=colours.scale,
        hovertemplate="%{y}, %{x}: %{z:.2f} times plain decoding's tokens/s<extra></extra>",
    )  # fmt: skip
    by_kind.update_xaxes(type="category", showgrid=False, side="top")
    by_kind.update_yaxes(autorange="reversed", showgrid=False, ticks="", ticksuffix=" ", tickfont_size=13)
    speeds = [
        MethodSpeed.of(row)
        for row in rows
        if row.label == (ALL if ALL in kinds else kinds[0]) and PLUS not in row.series
    ]
    return [
        (f"Speedup over plain decoding by {'kind of text' if ALL in kinds else 'temperature'}", by_kind),
        ("Tokens per step against time per step", tokens_against_time(speeds, dark, sizes=NARROW)),
    ]


CHARTS: dict[str, Draw] = {
    **dict.fromkeys(("eagle3-table1", "spec-bench"), methods_by_kind),
    "eagle3-training": by_training,
    "figure21": gain_of_record,
    **dict.fromkeys(("figure22", "figure23"), speedups_of_record),
    "figure3": kinds_of_text,
    "figure4": sparse_and_dense,
    "figure5": thresholds,
    "figure7": by_gamma,
    "grouped-heads": lambda record, dark: [changes_of_loss(record, dark)],
    "table2": recipes,
    "table3": techniques,
    "tokenswift": long_texts_of_record,
}


def _beside_the_paper(record: ExperimentRecord, dark: bool) -> Chart:
    """Speedups of the same labels, ours and the paper's as pairs of bars."""
    colours = palette(dark)
    rows = [row for row in record.rows if row.series != PLAIN and row.speedup]
    theirs = {row.label: row.speedup for row in record.paper.rows if row.speedup}
    shared = [row.label for row in rows if row.label in theirs]
    figure = _figure(dark, barmode="group")
    figure.add_bar(**_our_speedups(rows, colours))
    figure.add_bar(**_their_bars(shared, [theirs[label] for label in shared], colours))
    highest = max([*_highest(rows), *theirs.values()])
    _lying(figure, "speedup over plain decoding", highest, colours)
    return ("Speedup", figure)


def _our_speedups(rows: Sequence[Row], colours: Palette) -> dict[str, Any]:
    spreads = [row.speedup for row in rows if row.speedup]
    ranges = _ranges(spreads, colours.text)
    bars = _our_bars([row.label for row in rows], [spread.median for spread in spreads], ranges, "×", colours)
    return bars | {
        "customdata": [[row.tokens_per_step.mean, row.overhead] for row in rows],
        "hovertemplate": "%{y}: %{x:.2f}×, from %{customdata[0]:.2f} tokens per step "
        "at %{customdata[1]:.2f} times the cost of a plain step<extra></extra>",
    }


def _our_bars(
    labels: list[str], values: list[float], errors: dict[str, Any], unit: str, colours: Palette
) -> dict[str, Any]:
    """Solid bars with their errors; the value stands at the base, where no error bar crosses it."""
    return {
        **_bars(OURS, labels, values, unit), "textposition": "inside", "insidetextanchor": "start",
        "insidetextfont": {"color": colours.paper}, "error_x": errors,
        "marker": {"color": colours.accepted},
        "hovertemplate": "%{y}: %{x:.2f}<extra></extra>",
    }  # fmt: skip


def _their_bars(labels: list[str], values: list[float], colours: Palette) -> dict[str, Any]:
    """Hatched bars with the paper's speedups."""
    pattern = {"shape": "/", "solidity": 0.25, "bgcolor": colours.prefix, "fgcolor": colours.paper}
    return {
        **_bars(PAPER, labels, values, "×"), "textposition": "outside", "cliponaxis": False,
        "marker": {"color": colours.prefix, "pattern": pattern},
        "hovertemplate": "%{y}: %{x:.2f}× in the paper<extra></extra>",
    }  # fmt: skip


def _bars(name: str, labels: list[str], values: list[float], unit: str) -> dict[str, Any]:
    """Options of horizontal bars with their values on them."""
    texts = [f"{value:.2f}{unit}" for value in values]
    return {"name": name, "orientation": "h", "x": values, "y": labels, "text": texts, "textangle": 0}


def _style(colours: Palette, style: tuple[str, str, str]) -> dict[str, Any]:
    """Line and marker of a series from a colour of the palette, a symbol and a dash."""
    colour, symbol, dash = getattr(colours, style[0]), *style[1:]
    line = {"color": colour, "dash": dash, "width": 2}
    return {"line": line, "marker": {"symbol": symbol, "size": 8, "color": colour}}


def _ranges(spreads: Sequence[Spread], colour: str) -> dict[str, Any]:
    return ranges([(one.low, one.median, one.high) for one in spreads], colour)


def _lying(figure: go.Figure, words: str, highest: float, colours: Palette) -> None:
    """Axes of horizontal bars, the first on top; names stay level on a phone. 1 is plain decoding."""
    figure.update_xaxes(title_text=words, range=[0, 1.25 * highest])  # room for a number next to the bar
    figure.update_yaxes(autorange="reversed", showgrid=False, ticks="", ticksuffix=" ")
    figure.update_layout(uniformtext={"minsize": 11, "mode": "show"})
    figure.add_vline(x=1, line={"color": colours.text, "dash": "dot", "width": 1})


def _level(figure: go.Figure, y: float, name: str, colour: str, dash: str, ends: list[float]) -> None:
    figure.add_scatter(
        x=ends, y=[y, y], mode="lines", name=name, line={"color": colour, "dash": dash, "width": 2},
        hovertemplate=f"{name}: %{{y:.2f}}<extra></extra>",
    )  # fmt: skip


def _highest(rows: Sequence[Row]) -> list[float]:
    return [row.speedup.high for row in rows if row.speedup]


def _ends(rows: Sequence[Row]) -> list[float]:
    places = [row.x for row in rows if row.x is not None]
    return [min(places), max(places)]
