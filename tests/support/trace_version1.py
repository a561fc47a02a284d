"""A shipped recording in version 1 of the trace file, which knew only Medusa's heads."""

from __future__ import annotations

from typing import Any

from paths import ROOT

from medusa_core.trace.format import read_trace

SHIPPED = ROOT / "assets" / "traces" / "2-booking--long-paths.json"


def recording_of_version1() -> dict[str, Any]:
    trace = read_trace(SHIPPED).model_dump(mode="json")
    config = trace["config"]
    config["method"], config["acceptance"] = config.pop("drafter")["name"], config["acceptance"]["name"]
    config |= {"epsilon": 0.09, "delta": 0.3}
    for step in trace["steps"]:
        del step["after"]
        for node in step["nodes"]:
            origin = node.pop("origin")
            node |= {"head": origin["head"] or 0, "rank": origin["rank"]}
    return {**trace, "schema_version": 1}
