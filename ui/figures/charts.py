"""Four charts of one run, each a pure function from a RunTrace (plain dict) to a plotly figure.

Only bars, scatters and heatmaps: gradio bundles an older plotly.js than Python's plotly writes for. Figures
have no titles, since the page has headings and gradio widens the margin for a title. The steps are read
once, one after another: a long run is kept compressed in windows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import plotly.graph_objects as go

from medusa_core.errors import counted
from medusa_core.trace.replay.colours import PHASES, drafter_palette, palette
from ui.figures.palette import empty_figure, new_figure

PHASE_HELP = {
    "propose": "guesses are made, the tree is filled",
    "verify": "one forward pass over the tree",
    "accept": "the rule judges the nodes",
    "commit": "cache keeps the accepted rows",
    "other": "records, text and the rest of the loop",
}
_figure = partial(new_figure, height=320)
MAX_RANKS = 10  # the last one shown also stands for all beyond it
MOST_BARS = 400  # bars of a chart over the steps: more are neither seen nor quickly sent


class RunCounts:
    """What the charts of a run need of its steps, and how the guesses of each depth and rank fared."""

    def __init__(self, run: dict[str, Any]) -> None:
        self.drafter = run["config"]["drafter"]["name"]
        self.numbers: list[int] = []  # from 1, as the scrubber of the view counts
        self.kept: list[int] = []  # tokens
        self.ms: list[dict[str, float]] = []
        self.names: dict[int, str] = {}  # by depth
        self.offered: Counter[int] = Counter()  # by depth: steps whose tree had a node there
        self.reached: Counter[int] = Counter()  # by depth: steps whose accepted path got there
        # By depth and rank: nodes that could be accepted, since their parent was, and those that were.
        self.judged: Counter[tuple[int, int]] = Counter()
        self.accepted: Counter[tuple[int, int]] = Counter()
        for step in run["steps"]:
            self._add(step)

    def _add(self, step: dict[str, Any]) -> None:
        self.numbers.append(step["index"] + 1)
        self.kept.append(len(step["emitted"]))
        self.ms.append(step["ms"])
        path, depths = set(step["path"]), set()
        for node in step["nodes"]:
            depth, head = node["depth"], node["origin"]["head"]
            self.names.setdefault(depth, f"depth {depth}" if head is None else f"head {head}")
            if depth:
                depths.add(depth)
                key = (depth, min(node["origin"]["rank"] or 0, MAX_RANKS - 1))
                self.judged[key] += node["parent"] in path
                self.accepted[key] += node["id"] in path
        self.offered.update(depths)
        self.reached.update(depth for depth in depths if depth < len(step["path"]))

    @property
    def steps(self) -> int:
        return len(self.numbers)

    @property
    def together(self) -> int:
        """How many steps a bar stands for: one if there is room."""
        return -(-self.steps // MOST_BARS)


def all_charts(trace: dict[str, Any], dark: bool, recording: bool = False) -> tuple[go.Figure, ...]:
    """The four charts in the order the page shows them.

    ``recording``: only shares of a step's time are drawn, as its milliseconds are another day's and
    machine's, and none of the first step, which includes warming up. The card “So far” does the same.
    """
    if not trace["steps"]:
        return (empty_figure(dark, "no finished run to draw"),) * 4
    counts = RunCounts(trace)
    plain = empty_figure(dark, "plain decoding drafts nothing")
    of_guesses = (acceptance_by_depth(counts, dark), acceptance_by_rank(counts, dark))
    return (
        accepted_lengths(counts, dark),
        milliseconds(counts, dark, recording),
        *(of_guesses if counts.offered else (plain, plain)),
    )


def accepted_lengths(counts: RunCounts, dark: bool) -> go.Figure:
    """Tokens kept by each step: the root, which is always kept, and the accepted drafts on top."""
    colours, together = drafter_palette(counts.drafter, dark), counts.together
    index = means(counts.numbers, together)
    drafted = [max(0, kept - 1) for kept in counts.kept]  # the last step's path may be cut
    drafts, mean = means(drafted, together), fmean(drafted) + 1
    hatch = {"shape": "/", "solidity": 0.12, "bgcolor": colours.accepted, "fgcolor": colours.paper}
    figure = _figure(dark, barmode="stack")
    figure.add_bar(
        x=index, y=[1] * len(index), name="root", marker_color=colours.root,
        hovertemplate="step %{x}: the root, always kept<extra></extra>",
    )  # fmt: skip
    figure.add_bar(
        x=index, y=drafts, name="accepted drafts",
        marker={"color": colours.accepted, "pattern": hatch if together == 1 else None},
        hovertemplate="step %{x}: accepted drafts: %{y}<extra></extra>",
    )  # fmt: skip
    ends = [min(index) - 0.5 * together, max(index) + 0.5 * together]
    figure.add_scatter(
        x=ends, y=[mean, mean], mode="lines", name=f"mean {mean:.2f} tokens a step",
        line={"color": colours.text, "dash": "dash", "width": 1.5}, hoverinfo="skip",
    )  # fmt: skip
    figure.update_xaxes(title_text=_step_title(together), range=ends)
    figure.update_yaxes(title_text="tokens kept", dtick=1, range=[0, max(drafts) + 1.4])
    return figure


def milliseconds(counts: RunCounts, dark: bool, recording: bool = False) -> go.Figure:
    """Where the time of each step goes, stacked by phase; the legend carries the means."""
    rows = [phases_of(ms["total"], ms) for ms in counts.ms[recording:]]
    if not rows:
        return empty_figure(dark, "the first step of a recording has no times")
    if recording:
        rows = [tuple(part / (sum(row) or 1.0) for part in row) for row in rows]
    columns = list(zip(*rows, strict=True))
    whole = sum(map(sum, columns)) or 1.0
    figure = _figure(dark, barmode="stack")
    for phase, colour, column in zip(PHASES, palette(dark).phases, columns, strict=True):
        figure.add_bar(
            x=means(counts.numbers[recording:], counts.together), y=means(column, counts.together),
            name=f"{phase} {'' if recording else f'{fmean(column):.1f} ms, '}{sum(column) / whole:.0%}",
            marker_color=colour,
            hovertemplate=f"step %{{x}}, {phase}: %{{y:{'.0%' if recording else '.2f'}}}"
            f"{'' if recording else ' ms'}<br>{PHASE_HELP[phase]}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title_text=_step_title(counts.together))
    if recording:
        figure.update_yaxes(title_text="share of the step", tickformat=".0%")
    else:
        figure.update_yaxes(title_text="milliseconds")
    return figure


def acceptance_by_depth(counts: RunCounts, dark: bool) -> go.Figure:
    """The share of all steps whose accepted path reached each depth."""
    depths, whole = sorted(counts.offered), counts.steps
    shares = [counts.reached[depth] / whole for depth in depths]
    figure = _figure(dark)
    figure.add_bar(
        x=[counts.names[depth] for depth in depths], y=shares, text=[f"{share:.0%}" for share in shares],
        textposition="outside", cliponaxis=False, showlegend=False,
        marker_color=drafter_palette(counts.drafter, dark).accepted,
        customdata=[[counts.reached[depth], whole, counts.offered[depth]] for depth in depths],
        hovertemplate="%{x}: accepted in %{customdata[0]} of %{customdata[1]} steps"
        "<br>%{customdata[2]} steps had a guess there<extra></extra>",
    )  # fmt: skip
    figure.update_yaxes(title_text=_share_of(whole), tickformat=".0%", range=[0, 1.1])
    return figure


def acceptance_by_rank(counts: RunCounts, dark: bool) -> go.Figure:
    """The share of all steps that accepted the guess of each rank; a row adds up to its depth."""
    depths, whole = sorted(counts.offered), counts.steps
    ranks = sorted({rank for _, rank in counts.judged})
    shares: list[list[float | None]] = []
    hovers: list[list[str]] = []
    for depth in depths:
        cells = [(depth, rank) for rank in ranks]
        shares.append([counts.accepted[cell] / whole if cell in counts.judged else None for cell in cells])
        hovers.append([_rank_sentence(counts, *cell) for cell in cells])
    figure = _figure(dark)
    figure.add_heatmap(
        z=shares, x=[_rank_name(rank) for rank in ranks], y=[counts.names[depth] for depth in depths],
        text=[["" if share is None else f"{share:.0%}" for share in row] for row in shares],
        texttemplate="%{text}", hovertext=hovers, hovertemplate="%{hovertext}<extra></extra>",
        colorscale=drafter_palette(counts.drafter, dark).scale, zmin=0, zmax=1, xgap=2, ygap=2,
        colorbar={"tickformat": ".0%", "thickness": 10, "outlinewidth": 0},
    )  # fmt: skip
    title = f"rank of the guess, 1 is the favourite;<br>{_share_of(whole)}"
    figure.update_xaxes(title_text=title, type="category", showgrid=False)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure


def phases_of(step_ms: float, phase_ms: Mapping[str, float]) -> tuple[float, ...]:
    """Milliseconds in the order of PHASES; the last is the rest of the step."""
    named = [phase_ms[phase] for phase in PHASES[:-1]]
    return (*named, max(0.0, step_ms - sum(named)))


def means(values: Sequence[float], together: int) -> list[float]:
    """The mean of each group of ``together`` values; the last may be smaller."""
    if together == 1:
        return list(values)
    return [fmean(values[first : first + together]) for first in range(0, len(values), together)]


def _step_title(together: int) -> str:
    return "step" if together == 1 else f"step; each bar is the mean of {together} steps"


def _share_of(steps: int) -> str:
    return f"share of all {counted(steps, 'step')}" if steps != 1 else "share of the one step"


def _rank_name(rank: int) -> str:
    return f"{rank + 1}" if rank < MAX_RANKS - 1 else f"{MAX_RANKS}+"


def _rank_sentence(counts: RunCounts, depth: int, rank: int) -> str:
    if (depth, rank) not in counts.judged:
        return "not in the tree"
    accepted, judged = counts.accepted[depth, rank], counts.judged[depth, rank]
    return (
        f"{counts.names[depth]}, guess {_rank_name(rank)}: accepted in {accepted} of "
        f"{counted(counts.steps, 'step')}"
        f"<br>{accepted} of {counted(judged, 'guess', 'guesses')} whose parent was accepted"
    )
