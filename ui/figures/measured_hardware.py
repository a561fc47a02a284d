"""Charts of what the Hardware tab measures live, from the records of the measurements."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import plotly.graph_objects as go

from medusa_core.hardware.devices import TERA
from medusa_core.trace.replay.colours import palette
from ui.figures.charts import empty_figure
from ui.figures.palette import new_figure

HEIGHT = 340
_figure = partial(new_figure, height=HEIGHT)
NOT_MEASURED = "not measured yet"


@dataclass(frozen=True)
class Growth:
    """Milliseconds of the next token by the length of the text, with the cache and without."""

    length: tuple[int, ...] = ()
    cached: tuple[float, ...] = ()
    recomputed: tuple[float, ...] = ()


@dataclass(frozen=True)
class Passes:
    """Milliseconds of a pass by number of tokens, measured and predicted by the roofline of the machine."""

    tokens: tuple[int, ...] = ()
    measured: tuple[float, ...] = ()
    predicted: tuple[float, ...] = ()


@dataclass(frozen=True)
class Kinds:
    """Cache bytes and milliseconds of a token by kind of attention: (kind, length, bytes, ms)."""

    rows: tuple[tuple[str, int, int, float], ...] = ()


@dataclass(frozen=True)
class Products:
    """Products of steps under the roof of the machine that they were measured on, in bytes and FLOP a second.

    ``rows`` are (name, batch, tokens of a step, positions, FLOP a byte, FLOP a second).
    """

    bandwidth: float = 0
    peak: float = 0
    rows: tuple[tuple[str, int, int, int, float, float], ...] = ()


def products_chart(products: Products, dark: bool = False) -> go.Figure:
    """Measured speed against operational intensity, linear layers and attention, by tokens of a step."""
    if not products.rows:
        return empty_figure(dark, NOT_MEASURED)
    colours = palette(dark)
    figure = _figure(dark)
    intensities = [row[4] for row in products.rows]
    ridge = products.peak / products.bandwidth
    x = sorted({min(*intensities, ridge), ridge, max(*intensities, ridge)})
    figure.add_scatter(
        x=x, y=[min(products.peak, products.bandwidth * each) / TERA for each in x], mode="lines",
        name="roof", line={"color": colours.text, "width": 2.5}, hoverinfo="skip",
    )  # fmt: skip
    sizes = sorted({row[2] for row in products.rows})
    shades = dict(zip(sizes, (colours.proposed, colours.root, colours.accepted), strict=False))
    for name, symbol, words in (("up", "circle", "linear layer"), ("qk", "diamond-open", "attention")):
        for tokens, colour in shades.items():
            rows = [row for row in products.rows if (row[0], row[2]) == (name, tokens)]
            figure.add_scatter(
                x=[row[4] for row in rows], y=[row[5] / TERA for row in rows], mode="markers",
                name=f"{words}, {tokens} at once", customdata=[[row[1], row[3]] for row in rows],
                marker={"symbol": symbol, "size": 10, "color": colour, "line": {"width": 2}},
                hovertemplate=f"{words}, batch %{{customdata[0]}}, {tokens} at once, "
                "%{customdata[1]} positions: %{x:.2f} FLOP a byte, %{y:.3g} TFLOP/s<extra></extra>",
            )  # fmt: skip
    figure.update_xaxes(title_text="operational intensity: operations for each byte", type="log", dtick=1)
    figure.update_yaxes(title_text="TFLOP/s", type="log", dtick=1)
    return figure


def growth_chart(growth: Growth, dark: bool = False) -> go.Figure:
    """Time of the next token while a text grows."""
    if not growth.length:
        return empty_figure(dark, NOT_MEASURED)
    colours = palette(dark)
    figure = _figure(dark)
    for name, values, colour, dash in (
        ("without a cache: the whole text again", growth.recomputed, colours.rejected, "dash"),
        ("with the key-value cache", growth.cached, colours.accepted, "solid"),
    ):
        figure.add_scatter(
            x=list(growth.length), y=list(values), name=name, mode="lines",
            line={"color": colour, "dash": dash, "width": 2},
            hovertemplate="%{x} tokens: %{y:.1f} ms<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title_text="tokens of the text")
    figure.update_yaxes(title_text="milliseconds a token", rangemode="tozero")
    return figure


def passes_chart(passes: Passes, dark: bool = False) -> go.Figure:
    """Measured time of a pass as bars of two parts: what the roofline says, and what is beyond it."""
    if not passes.tokens:
        return empty_figure(dark, NOT_MEASURED)
    colours = palette(dark)
    figure = _figure(dark, barmode="stack")
    names = [str(count) for count in passes.tokens]
    rest = [max(0.0, ms - least) for ms, least in zip(passes.measured, passes.predicted, strict=True)]
    for name, values, colour, shape in (
        ("the roofline of this machine", passes.predicted, colours.accepted, ""),
        ("the framework and what it does not reach", rest, colours.prefix, "/"),
    ):
        figure.add_bar(
            x=names, y=list(values), name=name,
            marker={"color": colour, "line": {"width": 0}, "pattern": {"shape": shape}},
            customdata=list(zip(passes.measured, passes.predicted, strict=True)),
            hovertemplate="%{x} tokens: %{customdata[0]:.2f} ms measured, %{customdata[1]:.2f} predicted"
            "<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title_text="tokens in one pass", type="category")
    figure.update_yaxes(title_text="milliseconds", rangemode="tozero")
    return figure


def kinds_chart(kinds: Kinds, dark: bool = False, *, bytes_held: bool = False) -> go.Figure:
    """Time of a token, or bytes of the cache, by length and kind of attention."""
    if not kinds.rows:
        return empty_figure(dark, NOT_MEASURED)
    colours = palette(dark)
    figure = _figure(dark, barmode="group")
    unit = "MB" if bytes_held else "ms"
    shades = {"MHA": (colours.rejected, ""), "GQA": (colours.accepted, "/"), "MQA": (colours.root, "x")}
    for kind, (colour, shape) in shades.items():
        rows = [row for row in kinds.rows if row[0] == kind]
        figure.add_bar(
            x=[str(row[1]) for row in rows],
            y=[row[2] / 1e6 if bytes_held else row[3] for row in rows],
            name=kind,
            marker={"color": colour, "line": {"width": 0}, "pattern": {"shape": shape}},
            hovertemplate=f"{kind}, %{{x}} tokens: %{{y:.2f}} {unit}<extra></extra>",
        )
    figure.update_xaxes(title_text="tokens of the text", type="category")
    title = "cache, MB" if bytes_held else "milliseconds a token"
    figure.update_yaxes(title_text=title, rangemode="tozero")
    return figure
