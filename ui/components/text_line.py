"""One line of text that is announced to screen readers and is always shown as text, never as markup.

gradio's Markdown and HTML would interpret a prompt or an error that holds markup.
"""

from __future__ import annotations

import json
from typing import Any

from medusa_core.trace.replay.view import read_web
from ui.components.scripted_view import ScriptedView
from ui.records.words import as_data

_SCRIPT = """
const line = document.createElement("p");
line.className = "text-line-words";
line.setAttribute("role", "status");
function show() {
  const host = element.querySelector(".text-line") || element;
  if (line.parentNode !== host) host.append(line);
  line.textContent = props.value ? LANGUAGE.tell(JSON.parse(props.value)) : "";
}
watch("value", show);
LANGUAGE.listen(() => element.isConnected && show());
show();
"""


class TextLine(ScriptedView):
    """A status line or badge, set with a plain string."""

    def __init__(self, value: str | None = None, **kwargs: Any):
        super().__init__(value, host="text-line", script=read_web("language.js") + _SCRIPT, **kwargs)

    def postprocess(self, value: str | None) -> str | None:
        # "<" escaped: gradio warns about a "<script>" in a value even where nothing is parsed as HTML
        return _encode(value) if value else None


def _encode(text: str) -> str:
    return json.dumps(as_data(text)).replace("<", "\\u003c")
