"""The transcript of a chat: what was said, drawn in the browser as text and never as markup.

The component's value is one message, a JSON string; the page keeps what it has drawn. Knows turns and
pieces, nothing of the engine.

Messages by their "kind":
  show  the whole conversation; with "live" a reply follows  {"run", "live", "turns": [{"role", "pieces", …}]}
  grow  what a step adds to the reply of "run"               {"run", "step", "pieces": [{"text", "drafted"}]}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from medusa_core.text.streamed_text import TextSpan
from medusa_core.trace.replay.view import read_web
from ui.components.scripted_view import ScriptedView
from ui.records.conversation import Turn
from ui.records.words import as_data

SCRIPTS = ("language.js", "dom.js", "transcript.js")


class Transcript(ScriptedView):
    """`value` is a message of this module, or None for the empty state."""

    def __init__(self, value: str | None = None, **kwargs: Any):
        script = "\n".join(read_web(name) for name in SCRIPTS)
        super().__init__(value or "", host="talk-host", script=script, **kwargs)


def message_show(run: str, turns: Sequence[Turn], *, live: bool = False) -> str:
    """The whole conversation. ``run`` is any new name; the pieces of the reply come under it."""
    return _message("show", run, live=live, turns=[_told(turn) for turn in turns])


def message_grow(run: str, step: int, pieces: Sequence[TextSpan]) -> str:
    """What a step adds to the reply; ``step`` only makes equal messages differ."""
    return _message("grow", run, step=step, pieces=[asdict(piece) for piece in pieces])


def _told(turn: Turn) -> dict[str, Any]:
    figures = turn.figures
    return asdict(turn) | {"figures": as_data(figures)}


def _message(kind: str, run: str, **content: Any) -> str:
    text = json.dumps({"kind": kind, "run": run, **content}, ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c")  # so that no text looks like a tag
