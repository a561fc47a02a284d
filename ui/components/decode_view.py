"""The linked view: text, candidate tree, mask, inspector and transport, drawn in the browser from a trace.

The component's value is one message, a JSON string; the page keeps the trace and draws everything from it, so
neither scrubbing nor hovering nor moving ε / δ comes back to the server.

Messages by their "kind" ("seq" only makes equal messages differ):
  trace  a whole run, shown from step "at" {"run", "trace", "layouts", "note", "settings", "at"}
  begin  a live run starts, its trace has no steps yet     {"run", "trace"}
  steps  more steps of it, from number "first" on          {"run", "first", "steps", "tokens", …, "layouts"}
  end    the run is over; its steps have all been sent     {"run", "output", "beside"}
  broken the live run came to no end: why                  {"words"}
  rest   nothing new: the run is complete
  refused  a file that was opened is no trace: why         {"words"}
Messages that go out together are one of the kind "several" (`ui/records/updates.py`), and one of the kind
"numbered" holds one of which the server wants to hear that it was drawn (`ui/serving/update_stream.py`).
Traces and steps are in the compact form (`medusa_core/trace/packed.py`); steps come with what they add to its
tables. `layouts` gives the row of each node for the trees among that: {"-1,0,0,1": [1.0, 0.5, …]}.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import networkx as nx

from medusa_core.trace.packed import packed
from medusa_core.trace.replay.view import read_web, web_script
from ui.components.scripted_view import ScriptedView
from ui.records.outside import outside_defaults
from ui.records.words import as_data

TURNING = "turning"  # the step whose verdict turns with the smallest move of ε or δ, which the browser finds
OPENING = ("plan", "picture", "opening")
GLUE = "gradio.js"  # runs last: it mounts what the others define
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False)


class DecodeView(ScriptedView):
    """`value` is a message of this module, or None for the empty state."""

    script_events = frozenset({"undo", "play", "upload", "apply"})

    def __init__(self, value: str | None = None, **kwargs: Any):
        # The page's rules travel inside the script: a css_template would be compiled again at every step.
        defaults = f"const LINK_DEFAULTS = {json.dumps(outside_defaults())};\n"
        parts = [*(f"opening/{name}.js" for name in OPENING), GLUE]
        script = web_script() + defaults + "".join(map(read_web, parts))
        super().__init__(value or "", host="mdv-host", script=script, **kwargs)


def message_trace(
    seq: int,
    run: str,
    trace: dict,
    note: str = "",
    settings: dict[str, Any] | None = None,
    beside: dict[str, Any] | None = None,
    at: int | str = 0,
) -> str:
    """Show a whole trace from the step ``at``, or `TURNING`. `note` is a badge such as "recorded example".

    `settings` are what the page's controls hold for such a run, by name; the page sets them to it.
    `beside` is as in `message_end`.
    """
    whole = packed(trace)
    content = {"trace": whole, "layouts": layouts_of(whole["shapes"]), "note": as_data(note)}
    return _message(seq, "trace", run, **content, settings=settings, beside=beside, at=at)


def message_begin(seq: int, run: str, trace: dict) -> str:
    """A live run starts: the trace's head, with whatever it holds of steps and output left out."""
    head = {key: value for key, value in trace.items() if key != "output"}
    return _message(seq, "begin", run, trace={**head, "steps": []})


def message_steps(seq: int, run: str, first: int, news: dict) -> str:
    """More steps, the first of them number ``first``; `news` are those of a TraceBuilder."""
    return _message(seq, "steps", run, first=first, **news, layouts=layouts_of(news["shapes"]))


def message_end(seq: int, run: str, trace: dict, beside: dict[str, Any] | None = None) -> str:
    """The run is over: what came of it. A long run's steps are not sent again, which would take seconds.

    ``beside`` is what is known of model and machine and is no part of the run (`assets/web/worth.js`).
    """
    return _message(seq, "end", run, output=trace["output"], beside=beside)


def message_rest() -> str:
    """Nothing new."""
    return json.dumps({"kind": "rest"})


def message_refused(words: str) -> str:
    """A file that the visitor opened is not shown; the menu it was opened from says why."""
    # With a name of its own: the page does not notice an equal message.
    message = {"kind": "refused", "words": as_data(words), "run": uuid.uuid4().hex}
    return json.dumps(message).replace("<", "\\u003c")


def message_broken(words: str) -> str:
    """The live run came to no end of its own; `words` say why. Changes nothing where no run is live."""
    return _message(0, "broken", uuid.uuid4().hex, words=as_data(words))


def layouts_of(shapes: Iterable[dict]) -> dict[str, list[float]]:
    """Rows for each shape of tree, by its parents, joined by commas."""
    return {",".join(map(str, shape["parents"])): tree_rows(shape["parents"]) for shape in shapes}


def _message(seq: int, kind: str, run: str, **content: Any) -> str:
    text = _JSON.encode({"seq": seq, "kind": kind, "run": run, **content})
    return text.replace("<", "\\u003c")  # so that model text never looks like a tag, wherever it travels


def tree_rows(parents: Sequence[int]) -> list[float]:
    """Row of each node. `parents[i] < i`, and only the root (node 0) has parent -1."""
    tree = _tree_of(parents)
    rows = [0.0] * len(parents)
    next_row = 0
    for node in nx.dfs_postorder_nodes(tree, source=0):  # children come before their parent
        children = list(tree.successors(node))
        if children:
            rows[node] = (rows[children[0]] + rows[children[-1]]) / 2
        else:
            rows[node] = float(next_row)
            next_row += 1
    return rows


def _tree_of(parents: Sequence[int]) -> nx.DiGraph:
    if not parents or parents[0] != -1:
        raise ValueError(f"node 0 must be the root with parent -1, got parents {list(parents[:4])}")
    tree = nx.DiGraph()
    tree.add_nodes_from(range(len(parents)))
    for node, parent in enumerate(parents[1:], start=1):
        if not 0 <= parent < node:
            raise ValueError(f"node {node} has parent {parent}; a parent comes before its children")
        tree.add_edge(parent, node)
    return tree
