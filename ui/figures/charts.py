"""Four charts of one run, each a pure function from a RunTrace (plain dict) to a plotly figure.

Only bars, scatters and heatmaps: gradio bundles an older plotly.js than Python's plotly writes for. No titles
inside the figures, since the page has headings and gradio widens the margin for a title.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import plotly.graph_objects as go

from medusa_core.errors import counted
from medusa_core.trace.replay.colours import PHASES, Palette, drafter_palette, palette
from ui.figures.palette import new_figure
from ui.figures.run_counts import MAX_RANKS, RankCount, RunCounts, means, phase_columns

Run = dict[str, Any] | RunCounts  # a RunTrace, or what was counted of it already

PHASE_HELP = {
    "propose": "guesses are made, the tree is filled",
    "verify": "one forward pass over the tree",
    "accept": "the rule judges the nodes",
    "commit": "cache keeps the accepted rows",
    "other": "records, text and the rest of the loop",
}
HEIGHT = 320
_figure = partial(new_figure, height=HEIGHT)


def accepted_lengths(run: Run, dark: bool = False) -> go.Figure:
    """Tokens kept by each step: the root, which is always kept, and the accepted drafts on top."""
    counts = RunCounts.of(run)
    if not counts.steps:
        return empty_figure(dark)
    colours, index, together = _colours(counts, dark), *_places(counts)
    drafts = means([max(0, kept - 1) for kept in counts.kept], together)  # the last step's path may be cut
    mean = sum(max(0, kept - 1) for kept in counts.kept) / counts.steps + 1
    hatch = {"shape": "/", "solidity": 0.12, "bgcolor": colours.accepted, "fgcolor": colours.paper}
    figure = _figure(dark, barmode="stack")
    figure.add_bar(
        x=index, y=[1] * len(index), name="root", marker={"color": colours.root, "line": {"width": 0}},
        hovertemplate="step %{x}: the root, always kept<extra></extra>",
    )  # fmt: skip
    figure.add_bar(
        x=index,
        y=drafts,
        name="accepted drafts",
        marker={"color": colours.accepted, "line": {"width": 0}, "pattern": hatch if together == 1 else None},
        hovertemplate="step %{x}: accepted drafts: %{y}<extra></extra>",
    )
    ends = [min(index) - 0.5 * together, max(index) + 0.5 * together]
    figure.add_scatter(
        x=ends, y=[mean, mean], mode="lines", name=f"mean {mean:.2f} tokens a step",
        line={"color": colours.text, "dash": "dash", "width": 1.5}, hoverinfo="skip",
    )  # fmt: skip
    figure.update_xaxes(title_text=_step_title(together), range=ends)
    figure.update_yaxes(title_text="tokens kept", dtick=1, range=[0, max(drafts) + 1.4])
    return figure


def milliseconds(run: Run, dark: bool = False) -> go.Figure:
    """Where the time of each step goes, stacked by phase; the legend carries the means."""
    counts, colours = RunCounts.of(run), palette(dark)
    if not counts.steps:
        return empty_figure(dark)
    index, together = _places(counts)
    columns = phase_columns(counts.ms)
    whole = sum(sum(column) for column in columns.values()) or 1.0
    figure = _figure(dark, barmode="stack")
    for phase, colour in zip(PHASES, colours.phases, strict=True):
        column = columns[phase]
        share = sum(column) / whole
        figure.add_bar(
            x=index,
            y=means(column, together),
            name=f"{phase} {sum(column) / len(column):.1f} ms, {share:.0%}",
            marker={"color": colour, "line": {"width": 0}},
            hovertemplate=f"step %{{x}}, {phase}: %{{y:.2f}} ms<br>{PHASE_HELP[phase]}<extra></extra>",
        )
    figure.update_xaxes(title_text=_step_title(together))
    figure.update_yaxes(title_text="milliseconds")
    return figure


def acceptance_by_depth(run: Run, dark: bool = False) -> go.Figure:
    """In which share of all steps the accepted path reached each depth."""
    of_run = RunCounts.of(run)
    counts, names, whole = of_run.depths, of_run.names, of_run.steps
    if not counts:
        return _without_drafts(of_run, dark)
    shares = [count.reached / whole for count in counts]
    figure = _figure(dark)
    figure.add_bar(
        x=[names[count.depth] for count in counts],
        y=shares,
        text=[f"{share:.0%}" for share in shares],
        textposition="outside",
        cliponaxis=False,
        marker={"color": _colours(of_run, dark).accepted, "line": {"width": 0}},
        customdata=[[count.reached, whole, count.offered] for count in counts],
        hovertemplate="%{x}: accepted in %{customdata[0]} of %{customdata[1]} steps"
        "<br>%{customdata[2]} steps had a guess there<extra></extra>",
        showlegend=False,
    )
    figure.update_yaxes(title_text=_share_of(whole), tickformat=".0%", range=[0, 1.1])
    return figure


def acceptance_by_rank(run: Run, dark: bool = False) -> go.Figure:
    """In which share of all steps the guess of each rank was accepted: a row adds up to its depth."""
    of_run = RunCounts.of(run)
    counts, names, whole = of_run.ranks, of_run.names, of_run.steps
    if not counts:
        return _without_drafts(of_run, dark)
    depths = sorted({count.depth for count in counts})
    ranks = sorted({count.rank for count in counts})
    cells = {(count.depth, count.rank): count for count in counts}
    shares, texts, hovers = [], [], []
    for depth in depths:
        row = [cells.get((depth, rank)) for rank in ranks]
        shares.append([cell.accepted / whole if cell else None for cell in row])
        texts.append([f"{cell.accepted / whole:.0%}" if cell else "" for cell in row])
        hovers.append(
            [_rank_sentence(cell, names[depth], whole) if cell else "not in the tree" for cell in row]
        )
    figure = _figure(dark)
    figure.add_heatmap(
        z=shares,
        x=[_rank_name(rank) for rank in ranks],
        y=[names[depth] for depth in depths],
        text=texts,
        texttemplate="%{text}",
        hovertext=hovers,
        hovertemplate="%{hovertext}<extra></extra>",
        colorscale=_colours(of_run, dark).scale,
        zmin=0,
        zmax=1,
        xgap=2,
        ygap=2,
        colorbar={"tickformat": ".0%", "thickness": 10, "outlinewidth": 0},
    )
    title = f"rank of the guess, 1 is the favourite;<br>{_share_of(whole)}"
    figure.update_xaxes(title_text=title, type="category", showgrid=False)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure


def all_charts(trace: dict[str, Any], dark: bool = False) -> tuple[go.Figure, ...]:
    """The four charts in the order the page shows them."""
    counts = RunCounts.of(trace)
    return (
        accepted_lengths(counts, dark),
        milliseconds(counts, dark),
        acceptance_by_depth(counts, dark),
        acceptance_by_rank(counts, dark),
    )


def _without_drafts(counts: RunCounts, dark: bool) -> go.Figure:
    if not counts.steps:
        return empty_figure(dark)
    return empty_figure(dark, "plain decoding drafts nothing")


def _places(counts: RunCounts) -> tuple[Sequence[float], int]:
    """Where the bars stand, and how many steps each stands for; one bar a step where there is room."""
    return means(counts.numbers, counts.together), counts.together


def _step_title(together: int) -> str:
    return "step" if together == 1 else f"step; each bar is the mean of {together} steps"


def empty_figure(dark: bool = False, sentence: str = "no finished run to draw") -> go.Figure:
    """An empty frame that says why it is empty."""
    figure = _figure(dark)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.add_annotation(text=sentence, showarrow=False, font={"color": palette(dark).muted, "size": 13})
    return figure


def _colours(counts: RunCounts, dark: bool) -> Palette:
    """The palette of the drafter that made the run's guesses."""
    return drafter_palette(counts.drafter, dark)


def _share_of(steps: int) -> str:
    return f"share of all {counted(steps, 'step')}" if steps != 1 else "share of the one step"


def _rank_name(rank: int) -> str:
    return f"{rank + 1}" if rank < MAX_RANKS - 1 else f"{MAX_RANKS}+"


def _rank_sentence(count: RankCount, name: str, steps: int) -> str:
    return (
        f"{name}, guess {_rank_name(count.rank)}: accepted in {count.accepted} of {counted(steps, 'step')}"
        f"<br>{count.accepted} of {counted(count.judged, 'guess', 'guesses')} whose parent was accepted"
    )
