"""The side-by-side replay as a gradio component, and the messages it understands.

The component's value is one JSON message at a time; the page keeps the runs and draws them
(`assets/web/race`). The template is constant and holds no model text, since gradio evaluates templates as
code.
"""

from __future__ import annotations

import json
from typing import Any

from medusa_core.trace.replay.view import drafter_colours, mark_of, methods_script, read_web
from ui.components.scripted_view import ScriptedView
from ui.records.words import Words, as_data

SCRIPTS = (
    "language.js",
    "dom.js",
    "settings.js",
    "race/records.js",
    "race/lane.js",
    "race/summary.js",
    "race/gallery.js",
    "race/player.js",
)


class RaceView(ScriptedView):
    """Lanes of recorded runs on one shared clock, with figures and a verdict."""

    script_events = frozenset({"take"})

    def __init__(self, value: str | None = None, **kwargs: Any):
        script = "\n".join([methods_script(), *(read_web(n) for n in SCRIPTS)])
        super().__init__(value or "", host="race-host", script=script, **kwargs)


def race_css() -> str:
    """The replay's style sheet, for `launch(css=...)`."""
    own = read_web("race/race.css")
    return own + drafter_colours(".race-view ", "--race-accepted")


def lane(name: str, trace: dict[str, Any], runs: list[float] | None = None) -> dict[str, Any]:
    """One lane: the run to replay and the tokens/s of all runs it was chosen from."""
    drafter = trace["config"]["drafter"]["name"]
    return {"name": name, "drafter": drafter, "trace": _slim(trace), "runs": runs or []}


def race_message(
    seq: int,
    lanes: list[dict[str, Any]],
    verdict: dict[str, Any] | None,
    *,
    baseline: int | None = None,
) -> str:
    """The message that shows a finished comparison; the verdict is on the first two lanes.

    ``baseline`` is the number of the lane that speedup and overhead refer to, by default the last one.
    """
    return _encode(
        {
            "seq": seq,
            "kind": "race",
            "lanes": lanes,
            "verdict": verdict and {name: as_data(value) for name, value in verdict.items()},
            "baseline": len(lanes) - 1 if baseline is None else baseline,
        }
    )


def recorded_message(race: dict[str, Any]) -> str:
    """The message that shows a race from a file, which says in ``recorded`` where it was made."""
    return _encode(race)


def status_message(seq: int, text: str, busy: bool = True) -> str:
    """The message that says what is being measured now."""
    return _encode({"seq": seq, "kind": "status", "text": as_data(text), "busy": busy})


def _slim(trace: dict[str, Any]) -> dict[str, Any]:
    """The trace without what the replay never draws: the rejected nodes and the numbers of the verdicts."""
    steps = []
    for step in trace["steps"]:
        path = set(step["path"])
        nodes = [
            {"id": node["id"], "text": node["text"], **_proposer(node["origin"])}
            for node in step["nodes"]
            if node["id"] in path
        ]
        keys = ("index", "path", "emitted")
        total = round(step["ms"]["total"], 3)
        steps.append({**{key: step[key] for key in keys}, "ms": {"total": total}, "nodes": nodes})
    return {"prompt": {"text": trace["prompt"]["text"]}, "steps": steps}


def _proposer(origin: dict[str, Any]) -> dict[str, Any]:
    """The mark on an accepted guess, empty for the root, and who made it in words."""
    if not origin["by"]:
        return {"mark": "", "by": ""}
    if origin["head"] is None:
        return {"mark": mark_of(origin["by"]), "by": as_data(Words("the drafter {0}", origin["by"]))}
    return {"mark": str(origin["head"]), "by": as_data(Words("head {0}", origin["head"]))}


def _encode(message: dict[str, Any]) -> str:
    # "<" is escaped so that gradio does not take a model's "<script>" for markup and warn about it
    return json.dumps(message, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
