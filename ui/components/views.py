"""The components that our scripts draw from JSON strings, one at a time (`ui.records.messages`).

The page keeps what it was sent, so that neither scrubbing nor hovering nor moving ε / δ asks the
server. Templates are constant and hold no model text, since gradio evaluates templates as code.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import gradio as gr

from medusa_core.trace.packed import packed
from medusa_core.trace.replay.view import (
    drafter_colours,
    methods_script,
    read_web,
    view_style_script,
    web_script,
)
from ui.records.examples import Recording
from ui.records.messages import encoded
from ui.records.outside import outside_defaults
from ui.records.words import as_data


class ScriptedView(gr.HTML):
    """Its value is one string, a message to the script; ``script_events`` are those the script triggers."""

    script_events: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, value: str | None, *, host: str, script: str, **kwargs: Any):
        """``host`` is the class of the element that the script fills."""
        super().__init__(
            value=value,
            html_template=f'<div class="{host}"></div>',  # constant: gradio evaluates a template as code
            css_template="",
            js_on_load=script,
            apply_default_css=False,
            **kwargs,
        )

    def __getattr__(self, name: str) -> Any:
        # gradio searches the script for each missing attribute as a quoted word, to make an event of it.
        # The scripts are long, and it does so a hundred times per component.
        if name in type(self).script_events:
            return super().__getattr__(name)
        raise AttributeError(f"{type(self).__name__} has no attribute and no event {name!r}")

    def api_info(self) -> dict[str, Any]:
        return {"type": "string"}


class LanguageMenu(ScriptedView):
    """A menu of languages, the browser's own first; the browser remembers the choice, not the server."""

    def __init__(self, **kwargs: Any):
        script = read_web("language.js", "dom.js", "language_menu.js")
        super().__init__(None, host="language-host", script=script, **kwargs)


TEXT_LINE = """
const line = document.createElement("p");
line.className = "text-line-words";
line.setAttribute("role", "status");
const rest = document.createElement("span"); // a narrow header leaves it out
rest.className = "text-line-rest";
function show() {
  const host = element.querySelector(".text-line") || element;
  if (line.parentNode !== host) host.append(line);
  const words = props.value ? LANGUAGE.tell(JSON.parse(props.value)) : "";
  const first = words.split(" · ")[0];
  rest.textContent = words.slice(first.length);
  line.replaceChildren(...(words ? [first, rest] : [])); // styles ask whether it is empty
}
watch("value", show);
LANGUAGE.listen(() => element.isConnected && show());
show();
"""


class TextLine(ScriptedView):
    """A status line or badge, announced to screen readers; its plain string is never read as markup."""

    def __init__(self, value: str | None = None, **kwargs: Any):
        super().__init__(value, host="text-line", script=read_web("language.js") + TEXT_LINE, **kwargs)

    def postprocess(self, value: str | None) -> str | None:
        # "<" escaped: gradio warns about a "<script>" in a value even where nothing is parsed as HTML
        return json.dumps(as_data(value)).replace("<", "\\u003c") if value else None


class DecodeView(ScriptedView):
    """The linked view; `value` is one of its messages, or None for the empty state."""

    script_events = frozenset({"undo", "play", "upload", "apply"})

    def __init__(self, value: str | None = None, **kwargs: Any):
        # The page's rules travel inside the script: a css_template would be compiled again at every step.
        defaults = f"const LINK_DEFAULTS = {json.dumps(outside_defaults())};\n"
        own = read_web("opening/plan.js", "opening/picture.js", "opening/opening.js", "gradio.js")
        super().__init__(value or "", host="mdv-host", script=web_script() + defaults + own, **kwargs)


RACE_SCRIPTS = (
    "language.js", "dom.js", "text.js", "settings.js",
    *(f"race/{name}.js" for name in ("records", "lane", "summary", "gallery", "player")),
)  # fmt: skip


class RaceView(ScriptedView):
    """Lanes of recorded runs on one shared clock, with figures and a verdict."""

    script_events = frozenset({"take"})

    def __init__(self, value: str | None = None, **kwargs: Any):
        script = f"{methods_script()}\n{read_web(*RACE_SCRIPTS)}"
        super().__init__(value or "", host="race-host", script=script, **kwargs)


def race_css() -> str:
    """The replay's style sheet, for `launch(css=...)`."""
    return read_web("race/race.css") + drafter_colours(".race-view ", "--race-accepted")


class Transcript(ScriptedView):
    """What was said in a chat, as text; its value is a message, empty at first."""

    def __init__(self, **kwargs: Any):
        script = read_web("language.js", "dom.js", "transcript.js")
        super().__init__("", host="talk-host", script=script, **kwargs)


EDITOR_SCRIPTS = (
    "language.js", "dom.js", "text.js", "links.js", "rows.js",
    *(f"tree_editor/{name}.js" for name in ("values", "edits", "plan", "picture", "panel", "editor")),
)  # fmt: skip
# JavaScript that passes an event the tree in the page's editor, as rank tuples, in its hidden first input.
EDITED_TREE = """(_, ...others) => {
  const host = document.querySelector(".tree-edit-host");
  return [host && host.treeEditor ? JSON.stringify(host.treeEditor.nodes()) : "", ...others];
}"""


class TreeEditor(ScriptedView):
    """An editor of a candidate tree, from a JSON object with id, choices, rows, best, step_ms and most."""

    script_events = frozenset({"edit"})

    def __init__(self, value: str, **kwargs: Any):
        script = editor_script() + read_web("tree_editor/gradio.js")
        super().__init__(value, host="tree-edit-host", script=script, **kwargs)


def editor_script() -> str:
    """All of the editor without gradio: it defines `mountTreeEditor(host, edited)`."""
    style = f"const TREE_EDITOR_STYLE = {json.dumps(read_web('tree_editor/editor.css'))};"
    parts = ['"use strict";', methods_script(), view_style_script(), style, read_web(*EDITOR_SCRIPTS), ""]
    return "\n".join(parts)


LEARN_SCRIPTS = (
    "facts", "drafted", "exact", "needs", "telling", "formulas", "words", "hardware", "yours", "pictures",
    "glossary", "card", "own_run", "keyboard", "stage", "panel",
)  # fmt: skip
# JavaScript that passes an event the reader's question in its hidden first input. ANSWERED tells the answer.
ASKED = """(_, ...others) => [document.querySelector(".learn-host").learn.asked(), ...others]"""
ANSWERED = """(text) => document.querySelector(".learn-host").learn.expect(text)"""


class LearnView(ScriptedView):
    """The tour of the Learn tab, with what `learn_content` returns; `ask`: the reader asked (`ASKED`)."""

    script_events = frozenset({"ask"})

    def __init__(self, value: str, **kwargs: Any):
        script = learn_script() + read_web("learn/gradio.js")
        super().__init__(value, host="learn-host", script=script, **kwargs)


def learn_content(
    texts: dict[str, Any], records: dict[str, Any], trace: dict[str, Any], runs: Sequence[Recording] = ()
) -> str:
    """The component's value: texts by language, shipped records, and the recorded run.

    ``runs`` serve the cards that the recorded one cannot; a card that no run serves is left out.
    """
    others = [{"name": run.name, "trace": packed(run.trace)} for run in runs]
    recording = {"trace": packed(trace)}
    return encoded({"texts": texts, "records": records, "recording": recording, "runs": others})


def learn_script() -> str:
    """All of the tour without gradio: it defines `mountLearn(host, content)`."""
    style = json.dumps(read_web("learn/learn.css"))
    scripts = read_web(*(f"learn/{name}.js" for name in LEARN_SCRIPTS))
    # Its own function keeps the tour's names apart from those of the view, which the tour uses.
    inside = f"const LEARN_STYLE = {style};\n{scripts}\nreturn mountLearn;"
    return f"{web_script()}\nconst mountLearn = (() => {{\n{inside}\n}})();\n"
