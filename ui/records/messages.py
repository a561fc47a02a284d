"""Messages to the parts of the page that scripts draw, each a JSON string.

To the linked view, by "kind":
  trace  a whole run, shown from step "at" {"run", "trace", "note", "settings", "at", "beside"}
  begin  a live run starts, its trace has no steps yet     {"run", "trace"}
  steps  more steps of it, from number "first" on          {"run", "first", "steps", "tokens", …}
  end    the run is over; its steps have all been sent     {"run", "output", "beside"}
  broken the live run did not finish: why                  {"words"}
  rest   nothing new: the run is complete
  refused  a file that was opened is not a trace: why         {"words"}
Messages that go out together form one of kind "several" (`ui/records/updates.py`); one of kind "numbered"
wraps a message whose drawing the browser is to confirm (`ui/serving/update_stream.py`).
Traces and steps are in the compact form (`medusa_core/trace/packed.py`); steps come with what they add to its
tables.

To the transcript of a chat:
  show  the whole conversation; with "live" a reply follows  {"run", "live", "turns": [{"role", "pieces", …}]}
  grow  what a step adds to the reply of "run"               {"run", "step", "pieces": [{"text", "drafted"}]}

To the replay of a race: "race", a finished comparison, and "status", what is being measured now.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from medusa_core.text.streamed_text import TextSpan
from medusa_core.trace.packed import packed
from medusa_core.trace.replay.view import mark_of
from ui.records.conversation import Turn
from ui.records.words import Words, as_data

TURNING = "turning"  # the step whose verdict flips at the smallest change of ε or δ; the browser finds it
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False)


def encoded(content: Any) -> str:
    """As JSON, with "<" escaped, so that model text never looks like a tag."""
    return _JSON.encode(content).replace("<", "\\u003c")


# ---- the linked view -------------------------------------------------------------------------------------


def message_trace(
    run: str,
    trace: dict,
    note: str = "",
    settings: dict[str, Any] | None = None,
    beside: dict[str, Any] | None = None,
    at: int | str = 0,
) -> str:
    """Show a whole trace from the step ``at``, or `TURNING`. `note` is a badge such as "recorded example".

    `settings` are values for the page's controls by name; the page sets them.
    `beside` is as in `message_end`.
    """
    shown = {"note": as_data(note), "settings": settings, "beside": beside, "at": at}
    return _message("trace", run, trace=packed(trace), **shown)


def message_begin(run: str, trace: dict) -> str:
    """A live run starts: the trace without its steps and output."""
    head = {key: value for key, value in trace.items() if key != "output"}
    return _message("begin", run, trace={**head, "steps": []})


def message_steps(run: str, first: int, news: dict) -> str:
    """More steps, the first of them number ``first``; `news` comes from `TraceBuilder.news`."""
    return _message("steps", run, first=first, **news)


def message_end(run: str, trace: dict, beside: dict[str, Any] | None = None) -> str:
    """The run is over: its output. A long run's steps are not sent again, which would take seconds.

    ``beside`` is what is known of model and machine beyond the run (`assets/web/worth.js`).
    """
    return _message("end", run, output=trace["output"], beside=beside)


def message_rest() -> str:
    return encoded({"kind": "rest"})


def message_refused(words: str) -> str:
    """A file that the visitor opened is not shown; the menu it was opened from says why."""
    # In ASCII, since a broken file's text may hold half a character. A new "run" makes the message new.
    message = {"kind": "refused", "words": as_data(words), "run": uuid.uuid4().hex}
    return json.dumps(message).replace("<", "\\u003c")


def message_broken(words: str) -> str:
    """The live run did not finish; `words` say why. Changes nothing where no run is live."""
    return _message("broken", uuid.uuid4().hex, words=as_data(words))


def _message(kind: str, run: str, **content: Any) -> str:
    return encoded({"kind": kind, "run": run, **content})


# ---- the transcript --------------------------------------------------------------------------------------


def message_show(run: str, turns: Sequence[Turn], *, live: bool = False) -> str:
    """The whole conversation. ``run`` is any new name; the reply's pieces are sent under it."""
    shown = [asdict(turn) | {"figures": as_data(turn.figures)} for turn in turns]
    return encoded({"kind": "show", "run": run, "live": live, "turns": shown})


def message_grow(run: str, step: int, pieces: Sequence[TextSpan]) -> str:
    """What a step adds to the reply; ``step`` only makes equal messages differ."""
    return encoded({"kind": "grow", "run": run, "step": step, "pieces": [asdict(piece) for piece in pieces]})


# ---- the replay of a race --------------------------------------------------------------------------------


def lane(name: str, trace: dict[str, Any], runs: list[float] | None = None) -> dict[str, Any]:
    """One lane: the run to replay and the tokens/s of all runs it was chosen from."""
    drafter = trace["config"]["drafter"]["name"]
    return {"name": name, "drafter": drafter, "trace": _slim(trace), "runs": runs or []}


def race_message(
    lanes: list[dict[str, Any]], verdict: dict[str, Any] | None, *, baseline: int, warning: str = ""
) -> str:
    """The message that shows a finished comparison; the verdict is on the first two lanes.

    ``baseline`` is the number of the lane that speedup and overhead refer to, ``warning`` what else disturbed
    the times.
    """
    said = verdict and {name: as_data(value) for name, value in verdict.items()}
    race = {"lanes": lanes, "verdict": said, "baseline": baseline, "warning": as_data(warning)}
    return encoded({"seq": _number(), "kind": "race", **race})


def status_message(text: str, busy: bool = True) -> str:
    return encoded({"seq": _number(), "kind": "status", "text": as_data(text), "busy": busy})


def _number() -> int:
    """A number that no other message of the page has: equal messages would not count as new."""
    return uuid.uuid4().int % 2**31


def _slim(trace: dict[str, Any]) -> dict[str, Any]:
    """The trace without what the replay never draws: the rejected nodes and the numbers of the verdicts."""
    steps = []
    for step in trace["steps"]:
        nodes = [
            {"id": node["id"], "text": node["text"], **_proposer(node["origin"])}
            for node in step["nodes"]
            if node["id"] in step["path"]
        ]
        kept = {key: step[key] for key in ("path", "emitted")}
        steps.append({**kept, "ms": {"total": round(step["ms"]["total"], 3)}, "nodes": nodes})
    return {"prompt": {"text": trace["prompt"]["text"]}, "steps": steps}


def _proposer(origin: dict[str, Any]) -> dict[str, Any]:
    """The mark on an accepted guess, empty for the root, and who made it in words."""
    if not origin["by"]:
        return {"mark": "", "by": ""}
    if origin["head"] is None:
        return {"mark": mark_of(origin["by"]), "by": as_data(Words("the drafter {0}", origin["by"]))}
    return {"mark": str(origin["head"]), "by": as_data(Words("head {0}", origin["head"]))}
