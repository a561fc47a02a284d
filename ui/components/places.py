"""The page's places: the outer tabs, and the inner ones that a button in another place turns to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

PLACE_OF = {"decode": "watch", "side-by-side": "compare"}  # the parts that other places lead to


@dataclass(frozen=True)
class Places:
    """The tabs of the page and those inside Compare."""

    outer: gr.Tabs
    compare: gr.Tabs

    @property
    def tabs(self) -> list[gr.Tabs]:
        """The outputs of an event that turns the page."""
        return [self.outer, self.compare]

    @staticmethod
    def turned_to(part: str) -> tuple[Any, Any]:
        """Updates of `tabs` that bring a part of the page into view."""
        place = PLACE_OF[part]
        return gr.Tabs(selected=place), gr.Tabs(selected=part) if place == "compare" else gr.skip()
