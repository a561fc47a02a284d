"""Charts of the Hardware tab, from formulas and live measurements: pure functions of plain records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import plotly.graph_objects as go

from medusa_core.hardware.devices import TERA, Device
from medusa_core.hardware.operators import LINEAR, Measured, Product
from medusa_core.trace.replay.colours import palette
from ui.figures.palette import empty_figure, new_figure

HEIGHT, MEASURED_HEIGHT = 360, 340
PRODUCTS_HEIGHT = 410  # its legend has seven lines on a phone
_figure = partial(new_figure, height=HEIGHT)
PHASE_MARKS = {  # symbol, colour, and what the step is in plain words
    "prefill": ("square", "root", "reading a prompt (prefill)"),
    "decode": ("circle", "proposed", "plain step (decode)"),
    "parallel decode": ("diamond", "accepted", "step over a tree (parallel decode)"),
}
TENFOLD: dict[str, Any] = {  # an axis whose ticks are plain numbers: 0.0001 beside 0.001, not 100µ
    "type": "log", "dtick": 1, "exponentformat": "none", "separatethousands": True,
}  # fmt: skip
INTENSITIES = (0.25, 8192.0)
_measured_figure = partial(new_figure, height=MEASURED_HEIGHT)
NOT_MEASURED = "not measured yet"
RECORDED, MEASURED_HERE = "recorded", "measured here"


def roofline_chart(
    device: Device,
    steps: Mapping[str, Sequence[Product]],
    published: Sequence[Measured],
    dark: bool,
) -> go.Figure:
    """FLOP a second against FLOP a byte: the roof of a device, and where each product of each step lies."""
    colours = palette(dark)
    low, high = INTENSITIES
    x = [low, device.ridge, high] if low < device.ridge < high else [low, high]
    figure = _roof(device, x, dark, HEIGHT)
    for name, products in steps.items():
        symbol, colour, words = PHASE_MARKS[name]
        filled = [each.kind == LINEAR for each in products]
        # One mark of each kind is labelled, above or below the roof; where the two coincide, one mark has
        # both labels. A tree's marks are not labelled: they lie between the others, by the paper's stars.
        weights, attention = filled.index(True), filled.index(False)
        named = {weights: ("weights", "top left"), attention: ("attention", "bottom right")}
        if name == "parallel decode":
            named = {}
        elif 0.8 < products[weights].intensity / products[attention].intensity < 1.25:
            named = {weights: ("weights, attention", "bottom right")}
        labels = [named.get(place, ("", "top left")) for place in range(len(products))]
        figure.add_scatter(
            x=[each.intensity for each in products],
            y=[device.attainable(each.intensity) / TERA for each in products],
            mode="markers+text", name=words, customdata=[each.name for each in products],
            text=[text for text, _ in labels], textposition=[side for _, side in labels],
            textfont={"size": 11, "color": colours.muted}, cliponaxis=False,
            marker={"symbol": [symbol if full else f"{symbol}-open" for full in filled], "size": 11,
                    "color": getattr(colours, colour), "line": {"width": 2}},
            hovertemplate=f"{name}, %{{customdata}}: %{{x:.2f}} FLOP a byte, "
            "%{y:.3g} TFLOP/s<extra></extra>",
        )  # fmt: skip
    if published:
        figure.add_scatter(
            x=[each.product.intensity for each in published], y=[each.speed / TERA for each in published],
            mode="markers", name="measured in the paper", customdata=[each.words for each in published],
            marker={"symbol": "star", "size": 13, "color": colours.selected,
                    "line": {"color": colours.text, "width": 1}},
            hovertemplate="%{customdata}: %{y:.1f} TFLOP/s at %{x:.1f} FLOP a byte<extra></extra>",
        )  # fmt: skip
    return figure


def _roof(device: Device, x: Sequence[float], dark: bool, height: int) -> go.Figure:
    """FLOP a second against FLOP a byte, with the most that a device allows at each ``x``."""
    figure = new_figure(dark, height=height)
    figure.add_scatter(
        x=x, y=[device.attainable(each) / TERA for each in x], mode="lines", name="roof",
        line={"color": palette(dark).text, "width": 2.5}, hoverinfo="skip",
    )  # fmt: skip
    figure.update_xaxes(title_text="operational intensity: operations per byte", **TENFOLD)
    return figure.update_yaxes(title_text="TFLOP/s", **TENFOLD)


def sharing_drawing(heads: int, kv_heads: int, dark: bool) -> go.Figure:
    """Query heads above, key-value heads below, a line from each query head to the one it reads."""
    colours = palette(dark)
    shades = (colours.accepted, colours.rejected, colours.root, colours.selected, colours.phases[2])
    group = heads // kv_heads
    figure = new_figure(dark, height=220, showlegend=False)
    above, below = list(range(heads)), [(head + 0.5) * group - 0.5 for head in range(kv_heads)]
    read = [head // group for head in above]  # by query head, the key-value head
    x: list[float | None] = []
    y: list[float | None] = []
    for head in above:
        x += [head, below[read[head]], None]
        y += [1, 0, None]
    figure.add_scatter(x=x, y=y, mode="lines", line={"color": colours.muted, "width": 1}, hoverinfo="skip")
    size = max(3, min(14, 260 // heads))
    for places, level, symbol, owners, words in (
        (above, 1, "circle", read, "query head %{customdata[0]}, reads key-value head %{customdata[1]}"),
        (below, 0, "square", range(kv_heads), "key-value head %{customdata[0]}"),
    ):
        figure.add_scatter(
            x=places, y=[level] * len(places), mode="markers",
            marker={"symbol": symbol, "size": size, "color": [shades[each % len(shades)] for each in owners]},
            customdata=[[number, each + 1] for number, each in enumerate(owners, start=1)],
            hovertemplate=f"{words}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(visible=False)
    figure.update_yaxes(
        tickvals=[0, 1], ticktext=["keys, values", "queries"], range=[-0.4, 1.4], showgrid=False
    )
    return figure


def fits_chart(devices: Sequence[Device], weights: float, cache: float, dark: bool) -> go.Figure:
    """Gigabytes of weights and cache, and the memory of each device as a mark."""
    colours = palette(dark)
    figure = _figure(dark, barmode="stack")
    names = [device.title for device in devices]
    for words, value, colour in (
        ("weights", weights, colours.proposed), ("key-value cache", cache, colours.accepted),
    ):  # fmt: skip
        figure.add_bar(
            y=names, x=[value / 1e9] * len(names), orientation="h", name=words,
            marker_color=colour,
            hovertemplate=f"{words}: %{{x:.3g}} GB<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        y=names, x=[device.memory / 1e9 for device in devices], mode="markers", name="memory of the device",
        marker={"symbol": "line-ns-open", "size": 18, "color": colours.text, "line": {"width": 3}},
        hovertemplate="%{y}: %{x:.0f} GB<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title_text="GB", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure


def ratio_chart(x: Sequence[int], curves: Mapping[str, Sequence[float]], title: str, dark: bool) -> go.Figure:
    """Memory over arithmetic of attention for MHA, GQA and MQA; the dotted line is 1."""
    colours = palette(dark)
    figure = _figure(dark)
    for (name, values), colour, dash in zip(
        curves.items(),
        (colours.rejected, colours.accepted, colours.root),
        ("solid", "dash", "dot"),
        strict=False,
    ):
        figure.add_scatter(
            x=list(x), y=list(values), name=name, mode="lines",
            line={"color": colour, "dash": dash, "width": 2.5},
            hovertemplate=f"{name}: %{{x}} → %{{y:.3g}}<extra></extra>",
        )  # fmt: skip
    figure.add_hline(y=1, line={"color": colours.muted, "dash": "dot", "width": 1.5})
    figure.update_xaxes(title_text=title, **TENFOLD)
    figure.update_yaxes(title_text="numbers moved per multiplication", **TENFOLD)
    return figure


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


def products_chart(products: Products, dark: bool) -> go.Figure:
    """Measured speed against operational intensity, linear layers and attention, by tokens of a step."""
    if not products.rows:
        return empty_figure(dark, NOT_MEASURED)
    colours = palette(dark)
    device = Device("this", "this machine", products.bandwidth, products.peak, 0)
    intensities = [device.ridge, *(row[4] for row in products.rows)]
    x = sorted({min(intensities), device.ridge, max(intensities)})
    figure = _roof(device, x, dark, PRODUCTS_HEIGHT)
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
    return figure


def with_source(figure: go.Figure, *, recorded: bool, dark: bool) -> go.Figure:
    """The chart, saying at its upper right whether it shows the record; an empty one shows nothing."""
    if figure.data:
        figure.add_annotation(
            text=RECORDED if recorded else MEASURED_HERE, showarrow=False, x=1, xref="paper", xanchor="right",
            y=1, yref="paper", yanchor="bottom", font={"color": palette(dark).muted, "size": 12},
        )  # fmt: skip
    return figure


def growth_chart(growth: Growth, dark: bool) -> go.Figure:
    """Time of the next token while a text grows."""
    if not growth.length:
        return empty_figure(dark, NOT_MEASURED)
    colours = palette(dark)
    figure = _measured_figure(dark)
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


def passes_chart(passes: Passes, dark: bool) -> go.Figure:
    """Measured time of a pass as bars of two parts: what the roofline predicts, and the rest."""
    if not passes.tokens:
        return empty_figure(dark, NOT_MEASURED)
    colours = palette(dark)
    figure = _measured_figure(dark, barmode="stack")
    names = [str(count) for count in passes.tokens]
    rest = [max(0.0, ms - least) for ms, least in zip(passes.measured, passes.predicted, strict=True)]
    for name, values, colour, shape in (
        ("the roofline of this machine", passes.predicted, colours.accepted, ""),
        ("the framework and what it does not reach", rest, colours.prefix, "/"),
    ):
        figure.add_bar(
            x=names, y=list(values), name=name,
            marker={"color": colour, "pattern": {"shape": shape}},
            customdata=list(zip(passes.measured, passes.predicted, strict=True)),
            hovertemplate="%{x} tokens: %{customdata[0]:.2f} ms measured, %{customdata[1]:.2f} predicted"
            "<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title_text="tokens in one pass", type="category")
    figure.update_yaxes(title_text="milliseconds", rangemode="tozero")
    return figure


def kinds_chart(kinds: Kinds, dark: bool, *, bytes_held: bool = False) -> go.Figure:
    """Time of a token, or bytes of the cache, by length and kind of attention."""
    if not kinds.rows:
        return empty_figure(dark, NOT_MEASURED)
    colours = palette(dark)
    figure = _measured_figure(dark, barmode="group")
    unit = "MB" if bytes_held else "ms"
    shades = {"MHA": (colours.rejected, ""), "GQA": (colours.accepted, "/"), "MQA": (colours.root, "x")}
    for kind, (colour, shape) in shades.items():
        rows = [row for row in kinds.rows if row[0] == kind]
        figure.add_bar(
            x=[str(row[1]) for row in rows], y=[row[2] / 1e6 if bytes_held else row[3] for row in rows],
            name=kind, marker={"color": colour, "pattern": {"shape": shape}},
            hovertemplate=f"{kind}, %{{x}} tokens: %{{y:.2f}} {unit}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title_text="tokens of the text", type="category")
    title = "cache, MB" if bytes_held else "milliseconds a token"
    figure.update_yaxes(title_text=title, rangemode="tozero")
    return figure
