"""Methods as points, tokens per step against milliseconds per step, with lines of equal speed.

A point's tokens per second are the slope of the line from the origin to it, so both axes begin at zero. Pure
functions from plain records to a plotly figure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from medusa_core.drafters import PLUS, title_of
from medusa_core.experiments.record import Row
from medusa_core.trace.replay.colours import Palette, drafter_palette, palette
from ui.figures.name_places import NamePlace, name_places
from ui.figures.palette import empty_figure, new_figure

HEIGHT = 460
PLAIN = "none"
COMPUTED = "Computed by formulas, not measured"
MEASURED_AXIS = "milliseconds per step: right is slower"
COMPUTED_AXIS = "computed milliseconds per step: right is slower"
PEERS = {  # transformers' own ways to generate, measured along with the methods
    "hf": "transformers' generate",
    "hf-lookup": "transformers' prompt lookup",
    "hf-static": "transformers' generate, compiled",
}
LINES = 5  # about how many lines of equal speed
STEPS = (1, 2, 2.5, 5, 10)  # step from line to line, times a power of ten
ROOM = 1.16  # length of an axis over its largest value
Sizes = Sequence[tuple[float, float]]  # widths and heights of the axes in pixels
# From a small window to a large one: a chart of a page's width, or half of it.
WIDE: Sizes = ((770, 265), (1000, 265), (1400, 265))
NARROW: Sizes = ((390, 280), (520, 280), (680, 295))
ANCHORS = {1: "left", 0: "center", -1: "right"}  # by the side of its point on which a name stands
NUMBER = 36  # pixels across that the number at a line's end takes


@dataclass(frozen=True)
class MethodSpeed:
    """One method, measured or computed; ``tokens_per_second`` counts the time inside steps."""

    name: str
    tokens_per_step: float
    step_ms: float
    nodes: int = 1  # of its largest tree, the root included

    @classmethod
    def of(cls, row: Row) -> MethodSpeed:
        return cls(row.series, row.tokens_per_step.mean, row.step_ms, row.tree_nodes or 1)

    @property
    def title(self) -> str:
        """Its name for people."""
        return series_title(self.name)

    @property
    def tokens_per_second(self) -> float:
        """The slope of its line."""
        return 1000 * self.tokens_per_step / self.step_ms


def series_title(name: str) -> str:
    """The title of a method, or of one of transformers' ways; an unknown name stays as it is."""
    return PEERS.get(name) or title_of(name)


def method_mark(name: str, dark: bool) -> tuple[str, str]:
    """Symbol and colour of a method: plain decoding a square, one drafter a disc, two together a diamond."""
    if name == PLAIN:
        return "square", palette(dark).root
    first, plus, _ = name.partition(", ")[0].partition(PLUS)
    return "diamond" if plus else "circle", drafter_palette(first, dark).accepted


def speed_cells(row: Row) -> dict[str, str]:
    """The cells of a measured method in the tables of Methods and Speed."""
    return {
        "method": series_title(row.series),
        "nodes": "" if row.tree_nodes is None else str(row.tree_nodes),
        "tokens per step": f"{row.tokens_per_step.mean:.2f}",
        "ms a step": f"{row.step_ms:.2f}",
        "overhead": "" if row.overhead is None else f"{row.overhead:.2f}",
        "tokens/s": row.tokens_per_second.words(0),
        "speedup": "" if row.speedup is None else row.speedup.words(),
    }


def tokens_against_time(
    methods: Sequence[MethodSpeed], dark: bool, *, computed: bool = False, sizes: Sizes = WIDE
) -> go.Figure:
    """The picture that explains why more accepted tokens need not be faster.

    ``computed`` says on the picture itself that its times come from formulas. ``sizes`` are
    those that the axes may have: names are placed for all of them.
    """
    if not methods:
        return empty_figure(dark, "nothing measured yet")
    colours = palette(dark)
    most_ms = ROOM * max(method.step_ms for method in methods)
    most_tokens = ROOM * max(method.tokens_per_step for method in methods)
    figure = new_figure(dark, height=HEIGHT)
    speeds = line_speeds([method.tokens_per_second for method in methods])
    _add_lines(figure, speeds, (most_ms, most_tokens), min(sizes)[0], colours)
    plain = next((method for method in methods if method.name == PLAIN), None)
    if plain is not None:
        x, y = line_end(plain.tokens_per_second, most_ms, most_tokens)
        figure.add_scatter(
            x=[0, x], y=[0, y], mode="lines", name="as fast as plain decoding; above it is faster",
            line={"color": colours.root, "width": 2, "dash": "dashdot"}, hoverinfo="skip",
        )  # fmt: skip
    places = _places(methods, (most_ms, most_tokens), sizes)
    fastest = max(methods, key=lambda method: method.tokens_per_second)
    for method in methods:
        _add_point(figure, method, places[method.name], colours, dark)
    figure.add_scatter(
        x=[fastest.step_ms], y=[fastest.tokens_per_step], mode="markers", name="fastest", hoverinfo="skip",
        marker={"symbol": "circle-open", "size": 21, "color": colours.selected, "line": {"width": 2.5}},
    )  # fmt: skip
    figure.update_xaxes(title_text=COMPUTED_AXIS if computed else MEASURED_AXIS, range=[0, most_ms])
    figure.update_yaxes(title_text="tokens per step: up is more accepted", range=[0, most_tokens])
    figure.update_layout(margin={"r": 34}, legend={"y": -0.2})
    if computed:
        figure.update_layout(title={"text": COMPUTED, "x": 0.5, "font": {"size": 15}}, margin={"t": 50})
    return figure


def line_speeds(speeds: Sequence[float]) -> list[float]:
    """About ``LINES`` round speeds, from below the slowest method to above the fastest."""
    low, high = 0.85 * min(speeds), 1.1 * max(speeds)
    rough = (high - low) / LINES
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * size for size in STEPS if power * size >= rough)
    return [step * count for count in range(max(1, math.ceil(low / step)), math.floor(high / step) + 1)]


def line_end(speed: float, most_ms: float, most_tokens: float) -> tuple[float, float]:
    """Where the line of a speed leaves the axes."""
    tokens = speed * most_ms / 1000
    return (most_ms, tokens) if tokens <= most_tokens else (1000 * most_tokens / speed, most_tokens)


def _places(
    methods: Sequence[MethodSpeed], most: tuple[float, float], sizes: Sizes
) -> dict[str, NamePlace | None]:
    """Where the names of the methods stand; plain decoding’s is placed first, then those of usual trees."""
    ordered = sorted(methods, key=lambda one: (PLUS in one.name, "," in one.name, one.name != PLAIN))
    points = [(method.step_ms / most[0], method.tokens_per_step / most[1]) for method in ordered]
    places = name_places(points, [method.title for method in ordered], sizes)
    return {method.name: place for method, place in zip(ordered, places, strict=True)}


def _add_lines(
    figure: go.Figure, speeds: Sequence[float], most: tuple[float, float], width: float, colours: Palette
) -> None:
    """The lines of equal speed, slowest first; a number that would overlap the last one is left out."""
    last = math.inf
    for speed in speeds:
        x, y = line_end(speed, *most)
        figure.add_scatter(
            x=[0, x], y=[0, y], mode="lines", name="along a line the speed is the same, in tokens/s",
            showlegend=speed == speeds[0], hoverinfo="skip",
            line={"color": colours.muted, "width": 1, "dash": "dot"},
        )  # fmt: skip
        right = x == most[0]
        if not right and (last - x) / most[0] * width < NUMBER:
            continue
        last = last if right else x
        figure.add_annotation(
            x=x, y=y, text=f"{speed:g}", showarrow=False, font={"size": 11, "color": colours.muted},
            xanchor="left" if right else "center", yanchor="middle" if right else "bottom",
        )  # fmt: skip


def _add_point(
    figure: go.Figure, method: MethodSpeed, place: NamePlace | None, colours: Palette, dark: bool
) -> None:
    """A method as its mark; a name without a place shows on hover."""
    symbol, colour = method_mark(method.name, dark)
    figure.add_scatter(
        x=[method.step_ms],
        y=[method.tokens_per_step],
        mode="markers",
        cliponaxis=False,
        showlegend=False,
        name=method.title,
        marker={
            "symbol": symbol,
            "size": 12,
            "color": colour,
            "line": {"color": colours.paper, "width": 1},
        },
        hovertemplate=f"{method.title}: %{{y:.2f}} tokens a step, %{{x:.2f}} ms a step, "
        f"{method.tokens_per_second:,.0f} tokens/s<extra></extra>",
    )
    if place is None:
        return
    moved = (
        {"ax": place.right, "ay": -place.up, "arrowhead": 0, "arrowwidth": 1, "arrowcolor": colours.muted}
        | {"standoff": 7}
        if place.led
        else {"xshift": place.right, "yshift": place.up}
    )
    figure.add_annotation(
        x=method.step_ms, y=method.tokens_per_step, text=method.title, showarrow=place.led,
        font={"size": 12, "color": colours.text}, xanchor=ANCHORS[place.side], align=ANCHORS[place.side],
        yanchor="middle", borderpad=0, **moved,
    )  # fmt: skip
