"""A candidate tree that is edited in the browser, drawn as in the linked view (`assets/web/tree_editor`).

The component's value is one JSON string: the tree to start with and the accuracies from which the browser
computes what each guess adds. `edit` tells that the tree was changed; `EDITED_TREE` fetches it.
"""

from __future__ import annotations

import json
from typing import Any

from medusa_core.trace.replay.view import methods_script, read_web, view_style_script
from ui.components.scripted_view import ScriptedView

SHARED = ("language.js", "dom.js", "text.js", "links.js", "rows.js")  # with the linked view
OWN = ("values.js", "edits.js", "plan.js", "picture.js", "panel.js", "editor.js")
GLUE = "gradio.js"  # runs last: it mounts what the others define
HOST = "tree-edit-host"
# Of an event whose first input is a hidden text: it gets the tree of the editor on the page, as rank tuples.
EDITED_TREE = f"""(_, ...others) => {{
  const host = document.querySelector(".{HOST}");
  return [host && host.treeEditor ? JSON.stringify(host.treeEditor.nodes()) : "", ...others];
}}"""


class TreeEditor(ScriptedView):
    """`value` is what `editor_value` returns."""

    script_events = frozenset({"edit"})

    def __init__(self, value: str, **kwargs: Any):
        script = editor_script() + read_web(f"tree_editor/{GLUE}")
        super().__init__(value, host=HOST, script=script, **kwargs)


def editor_value(content: dict[str, Any]) -> str:
    """The component's value. `content` has id, choices, rows, best, step_ms and most."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def editor_script() -> str:
    """All of the editor without gradio: it defines `mountTreeEditor(host, edited)`."""
    style = json.dumps(read_web("tree_editor/editor.css"))
    files = [*SHARED, *(f"tree_editor/{name}" for name in OWN)]
    parts = ['"use strict";', methods_script(), view_style_script(), f"const TREE_EDITOR_STYLE = {style};"]
    return "\n".join([*parts, *(read_web(name) for name in files), ""])
