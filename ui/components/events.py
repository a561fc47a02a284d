"""What the page's events share."""

from __future__ import annotations

from typing import Any

import gradio as gr
from gradio.context import Context

# Of an event that shows no spinner and has no name in the page's API.
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}


def page_under_way() -> gr.Blocks:
    """The page that is being laid out, for what happens when it has been loaded."""
    if Context.root_block is None:
        raise RuntimeError("no page is being laid out: call this within gr.Blocks")
    return Context.root_block
