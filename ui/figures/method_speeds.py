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
from medusa_core.trace.replay.colours import Palette, drafter_palette, palette
from ui.figures.charts import empty_figure
from ui.figures.palette import new_figure

HEIGHT = 460
PLAIN = "none"
COMPUTED = "Computed by formulas, not measured"
MEASURED_AXIS = "milliseconds per step: right is slower"
COMPUTED_AXIS = "computed milliseconds per step: right is slower"
PEERS = {  # what transformers does by itself, measured beside the methods
    "hf": "transformers' generate",
    "hf-lookup": "transformers' prompt lookup",
    "hf-static": "transformers' generate, compiled",
}
LINES = 5  # of equal speed, about
STEPS = (1, 2, 2.5, 5, 10)  # between two lines, times a power of ten
ROOM = 1.16  # of an axis over its largest value
# Places of a name beside its point, in the order in which they are tried, as shares of the axes.
PLACES = {
    "top center": (0.0, 0.045), "bottom center": (0.0, -0.045), "middle right": (0.11, 0.0),
    "middle left": (-0.11, 0.0), "top right": (0.11, 0.035), "bottom right": (0.11, -0.035),
    "top left": (-0.11, 0.035), "bottom left": (-0.11, -0.035),
}  # fmt: skip
LETTER = 6.5  # pixels
LINE_HEIGHT = 0.055  # height of a name, as a share of the axis
WIDE, NARROW = 800, 600  # pixels of the axis where a chart has a page's width, or half of it


@dataclass(frozen=True)
class MethodSpeed:
    """One method, measured or computed; ``tokens_per_second`` counts the time inside steps."""

    name: str
    tokens_per_step: float
    step_ms: float
    nodes: int = 1  # of its largest tree, the root included

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


def tokens_against_time(
    methods: Sequence[MethodSpeed], dark: bool = False, *, computed: bool = False, width: int = WIDE
) -> go.Figure:
    """The picture that explains why more accepted tokens need not be faster.

    ``computed`` says on the picture itself that its times come from formulas. ``width`` are pixels of the
    axis, about: so many letters have room.
    """
    if not methods:
        return empty_figure(dark, "nothing measured yet")
    colours = palette(dark)
    most_ms = ROOM * max(method.step_ms for method in methods)
    most_tokens = ROOM * max(method.tokens_per_step for method in methods)
    figure = new_figure(dark, height=HEIGHT)
    for number, speed in enumerate(line_speeds([method.tokens_per_second for method in methods])):
        _add_line(figure, speed, (most_ms, most_tokens), colours, first=number == 0)
    plain = next((method for method in methods if method.name == PLAIN), None)
    if plain is not None:
        x, y = line_end(plain.tokens_per_second, most_ms, most_tokens)
        figure.add_scatter(
            x=[0, x], y=[0, y], mode="lines", name="as fast as plain decoding; above it is faster",
            line={"color": colours.root, "width": 2, "dash": "dashdot"}, hoverinfo="skip",
        )  # fmt: skip
    places = name_places(methods, most_ms, most_tokens, LETTER / width)
    fastest = max(methods, key=lambda method: method.tokens_per_second)
    for method, place in zip(methods, places, strict=True):
        _add_point(figure, method, place, colours, dark)
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


def name_places(
    methods: Sequence[MethodSpeed], most_ms: float, most_tokens: float, letter: float = LETTER / WIDE
) -> list[str | None]:
    """Beside its point, where each method's name crosses the fewest other names and points.

    None for one whose name would lie over others: it is left to the pointer. ``letter`` is the width of one
    as a share of the axis.
    """
    at = [(method.step_ms / most_ms, method.tokens_per_step / most_tokens) for method in methods]
    taken: list[tuple[float, float, float, float]] = [_box(x, y, 2 * letter) for x, y in at]
    found: dict[int, str | None] = {}

    def turn(number: int) -> tuple[bool, float]:
        """One drafter's name comes before those of two, then the one with the nearest neighbour."""
        nearest = min((math.dist(at[number], other) for other in at if other != at[number]), default=1.0)
        return PLUS in methods[number].name, nearest

    for number in sorted(range(len(methods)), key=turn):
        method, (x, y) = methods[number], at[number]
        boxes = {}
        for place, (right, up) in PLACES.items():
            width = letter * len(method.title)
            shift = math.copysign(width / 2 + 0.02, right) if right else 0.0
            boxes[place] = _box(x + shift, y + up, width)
        own = _box(x, y, 2 * letter)
        crossed = {
            place: sum(_overlap(box, other) for other in taken if other != own) + _outside(box)
            for place, box in boxes.items()
        }
        best = min(crossed, key=crossed.__getitem__)
        if crossed[best] > 0:
            found[number] = None
            continue
        taken.append(boxes[best])
        found[number] = best
    return [found[number] for number in range(len(methods))]


def _box(x: float, y: float, width: float) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of a name in the middle of which is (x, y)."""
    return x - width / 2, x + width / 2, y - LINE_HEIGHT / 2, y + LINE_HEIGHT / 2


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> float:
    wide = min(a[1], b[1]) - max(a[0], b[0])
    high = min(a[3], b[3]) - max(a[2], b[2])
    return max(0.0, wide) * max(0.0, high)


def _outside(box: tuple[float, float, float, float]) -> float:
    """What of a name would stand beyond the axes."""
    return LINE_HEIGHT * (max(0.0, -box[0]) + max(0.0, box[1] - 1))


def _add_line(
    figure: go.Figure, speed: float, most: tuple[float, float], colours: Palette, *, first: bool
) -> None:
    x, y = line_end(speed, *most)
    figure.add_scatter(
        x=[0, x], y=[0, y], mode="lines", name="along a line the speed is the same, in tokens/s",
        showlegend=first, line={"color": colours.muted, "width": 1, "dash": "dot"}, hoverinfo="skip",
    )  # fmt: skip
    right = x == most[0]
    figure.add_annotation(
        x=x, y=y, text=f"{speed:g}", showarrow=False, font={"size": 11, "color": colours.muted},
        xanchor="left" if right else "center", yanchor="middle" if right else "bottom",
    )  # fmt: skip


def _add_point(
    figure: go.Figure, method: MethodSpeed, place: str | None, colours: Palette, dark: bool
) -> None:
    """A method: plain decoding a square, one drafter a disc, two together a diamond."""
    merged = PLUS in method.name
    own = drafter_palette(method.name.partition(PLUS)[0], dark).accepted
    figure.add_scatter(
        x=[method.step_ms],
        y=[method.tokens_per_step],
        mode="markers+text",
        text=[method.title if place else ""],
        textposition=place or "top center",
        textfont={"size": 12, "color": colours.text},
        cliponaxis=False,
        showlegend=False,
        marker={
            "symbol": "square" if method.name == PLAIN else "diamond" if merged else "circle",
            "size": 12,
            "color": colours.root if method.name == PLAIN else own,
            "line": {"color": colours.paper, "width": 1},
        },
        hovertemplate=f"{method.title}: %{{y:.2f}} tokens a step, %{{x:.2f}} ms a step, "
        f"{method.tokens_per_second:.0f} tokens/s<extra></extra>",
    )
