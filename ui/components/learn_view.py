"""The tour of the Learn tab: cards that explain Medusa on a recorded run and drive the linked view.

The component's value is one JSON string with the texts of each language, the shipped measurements and a
recorded run. The browser computes every number of a card from them (`assets/web/learn`), so no card asks the
server.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from medusa_core.trace.packed import packed
from medusa_core.trace.replay.colours import css_variables
from medusa_core.trace.replay.view import read_web, web_script
from ui.components.decode_view import layouts_of
from ui.components.scripted_view import ScriptedView
from ui.records.examples import Recording

SCRIPTS = (
    "facts", "drafted", "exact", "needs", "telling", "formulas", "words", "hardware", "yours", "pictures",
    "memory", "glossary", "card", "own_run", "keyboard", "stage", "panel",
)  # fmt: skip
GLUE = "gradio.js"  # runs last: it mounts what the others define
# Of an event whose first input is a hidden text: it gets what the reader asked. ANSWERED tells the answer.
ASKED = """(_, ...others) => [document.querySelector(".learn-host").learn.asked(), ...others]"""
ANSWERED = """(text) => document.querySelector(".learn-host").learn.expect(text)"""


class LearnView(ScriptedView):
    """`value` is what `learn_content` returns. `ask`: the reader named a model and a device (`ASKED`)."""

    script_events = frozenset({"ask"})

    def __init__(self, value: str, **kwargs: Any):
        script = learn_script() + read_web(f"learn/{GLUE}")
        super().__init__(value, host="learn-host", script=script, **kwargs)


def learn_content(
    texts: dict[str, Any],
    records: dict[str, Any],
    trace: dict[str, Any],
    runs: Sequence[Recording] = (),
) -> str:
    """The component's value: texts by language, records of `ui.records.lessons`, and the recorded run.

    ``runs`` tell what the recorded one cannot; a card that none of them can tell is left out.
    """
    others = [{"name": run.name, **_recording(run.trace)} for run in runs]
    content = {"texts": texts, "records": records, "recording": _recording(trace), "runs": others}
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")  # so that model text never looks like a tag, wherever it travels


def _recording(trace: dict[str, Any]) -> dict[str, Any]:
    whole = packed(trace)
    return {"trace": whole, "layouts": layouts_of(whole["shapes"])}


def learn_script() -> str:
    """All of the tour without gradio: it defines `mountLearn(host, content)`."""
    colours = css_variables(".learn") + css_variables(".dark .learn", dark=True)
    style = json.dumps(colours + read_web("learn/learn.css"))
    parts = [read_web(f"learn/{name}.js") for name in SCRIPTS]
    # A function of its own keeps the tour's names apart from those of the view, which it uses.
    inside = "\n".join([f"const LEARN_STYLE = {style};", *parts, "return mountLearn;"])
    return f"{web_script()}\nconst mountLearn = (() => {{\n{inside}\n}})();\n"
