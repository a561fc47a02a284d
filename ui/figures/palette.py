"""What charts share, in the colours of the linked view: template, new and empty figures, error bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from medusa_core.trace.replay.colours import DARK, LIGHT, SANS, palette

OF_ONE_THEME = ("text", "muted", "grid")  # colours that cannot be read in the other theme


def plotly_template(dark: bool) -> go.layout.Template:
    """Transparent ground, quiet grid, the page's own font; the figure sits on whatever card holds it."""
    colours = palette(dark)
    axis = {
        **dict.fromkeys(("gridcolor", "linecolor", "tickcolor"), colours.grid),
        "zeroline": False,
        "ticks": "outside",
        "automargin": True,
        "title": {"standoff": 8, "font": {"size": 12, "color": colours.muted}},
    }
    layout = {
        "font": {"family": ", ".join(SANS), "size": 12, "color": colours.text},
        **dict.fromkeys(("paper_bgcolor", "plot_bgcolor"), "rgba(0,0,0,0)"),
        **dict.fromkeys(("xaxis", "yaxis"), axis),
        "margin": {"l": 48, "r": 12, "t": 44, "b": 40},
        "legend": {"orientation": "h", "x": 0, "y": -0.28, "xanchor": "left", "yanchor": "top"}
        | {"traceorder": "normal"},
        "hoverlabel": {
            "bgcolor": colours.paper, "font": {"color": colours.text}, "bordercolor": colours.muted,
        },
        "bargap": 0.15,
    }  # fmt: skip
    return go.layout.Template(layout=layout)


def new_figure(dark: bool, *, height: int, **layout: Any) -> go.Figure:
    """A figure without traces, its height in pixels."""
    return go.Figure(layout={"template": plotly_template(dark), "height": height} | layout)


def empty_figure(dark: bool, sentence: str) -> go.Figure:
    """An empty frame that says why it is empty."""
    figure = new_figure(dark, height=320)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.add_annotation(text=sentence, showarrow=False, font={"color": palette(dark).muted, "size": 13})
    return figure


def errors(values: Sequence[float | None], colour: str) -> dict[str, Any]:
    """Bars of one standard error, where there is one."""
    return {"type": "data", "array": [value or 0 for value in values], "color": colour, "thickness": 1}


def ranges(rounds: Sequence[tuple[float, float, float]], colour: str, thickness: float = 1) -> dict[str, Any]:
    """Bars from the lowest round to the highest, from each place's (lowest, median, highest)."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - median for _, median, high in rounds],
        "arrayminus": [median - low for low, median, _ in rounds],
        "color": colour,
        "thickness": thickness,
    }


def theme_rules() -> str:
    """Style rules for charts drawn before the theme changed: plotly writes colours into each element."""
    rules = []
    for page, drawn, now in (("body.dark", LIGHT, DARK), ("body:not(.dark)", DARK, LIGHT)):
        for name in OF_ONE_THEME:
            before = ", ".join(str(part) for part in bytes.fromhex(getattr(drawn, name)[1:]))
            for kind in ("fill", "stroke"):
                chosen = f'{page} .js-plotly-plot [style*="{kind}: rgb({before})"]:not(.hoverlayer *)'
                rules.append(f"{chosen} {{ {kind}: {getattr(now, name)} !important; }}\n")
    return "".join(rules)
