"""What the page's events share, and the places that they switch to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr
from gradio.context import Context

# Options of an event that shows no spinner and has no name in the page's API.
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
AT_ONCE: dict[str, Any] = {"queue": False, **QUIET}  # the same for one that does not wait in the queue
# JavaScript: whether the browser shows the dark theme, alone or as a drawing event's last input.
DARK_THEME = "() => document.body.classList.contains('dark')"
THEME = "(...values) => [...values.slice(0, -1), document.body.classList.contains('dark')]"
# Options of an event that draws what changed, from formulas or records, in the browser's theme.
DRAWS: dict[str, Any] = {"js": THEME, "trigger_mode": "always_last", **AT_ONCE}
# Makes the browser save a file of this name, unless its text is empty.
SAVE = """(name, text) => {
  if (!text) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}"""
# Tells a view the controls' values, so that it can say which have no effect or wait for the next run. The
# server is not asked. A view in a tab not opened yet finds the values where they are kept for it.
TELL_VIEW = """(...values) => {
  const detail = Object.fromEntries(NAMES.map((name, i) => [name, values[i]]));
  if (FIXED) detail.fixed = FIXED;
  if (EVENT === "settings") (window.medusaSettings ??= {})[VIEW] = detail;
  const view = document.getElementById(VIEW);
  if (view) view.dispatchEvent(new CustomEvent(EVENT, { detail }));
}"""


def tell_view(
    view: str,
    event: str,
    triggers: Sequence[Any],
    settings: Mapping[str, Any],
    fixed: Mapping[str, Any] | None = None,
) -> None:
    """Each of ``triggers`` tells the view of that id in the browser what ``settings`` hold, by name.

    ``fixed`` are values that the run takes instead of those of the page's controls.
    """
    script = tell_script(view, event, list(settings), fixed)
    gr.on(triggers, None, list(settings.values()), None, js=script)


def tell_script(view: str, event: str, names: Sequence[str], fixed: Mapping[str, Any] | None = None) -> str:
    """The JavaScript of `tell_view`, for an event that follows another one."""
    script = TELL_VIEW.replace("NAMES", json.dumps(names)).replace("FIXED", json.dumps(fixed))
    return script.replace("EVENT", json.dumps(event)).replace("VIEW", json.dumps(view))


def page_under_way() -> gr.Blocks:
    """The page that is being laid out, for events that follow its loading."""
    if Context.root_block is None:
        raise RuntimeError("no page is being laid out: call this within gr.Blocks")
    return Context.root_block


TO_TOP = "() => window.scrollTo(0, 0)"  # the reader left the other place somewhere below its Run button


def turned_to(place: str) -> tuple[Any, Any]:
    """Updates of the page's tabs and of those inside Compare that show Watch or, in Compare, Side by side."""
    return gr.Tabs(selected=place), gr.Tabs(selected="side-by-side") if place == "compare" else gr.skip()
