"""The four charts of a run, laid out under the view; they are drawn when a run has ended.

Knows where the charts stand and which theme the browser shows, nothing of how they are computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from ui.figures.charts import all_charts

TITLES = (
    "Tokens kept by each step",
    "Where the milliseconds go",
    "How often a guess of each depth was accepted",
    "The same by rank: a row adds up to its bar",
)
DARK_THEME = "() => document.body.classList.contains('dark')"


@dataclass(frozen=True)
class ChartPanel:
    """The plots, and a hidden flag that says whether the browser shows the dark theme."""

    plots: tuple[gr.Plot, ...]
    dark: gr.Checkbox

    @classmethod
    def build(cls) -> ChartPanel:
        dark = gr.Checkbox(visible=False)
        plots = []
        with gr.Accordion("Charts of the run", open=False, elem_id="charts"):
            for first in (0, 2):
                with gr.Row():
                    plots += [
                        gr.Plot(label=title, min_width=320, elem_id=f"chart-{first + i}")
                        for i, title in enumerate(TITLES[first : first + 2])
                    ]
        return cls(tuple(plots), dark)

    def updates(self, trace: dict[str, Any] | None, dark: bool) -> tuple[Any, ...]:
        """What to send to the plots: the figures of a finished run, nothing where there is none."""
        if trace is None:
            return tuple(gr.skip() for _ in self.plots)
        return all_charts(trace, dark)
