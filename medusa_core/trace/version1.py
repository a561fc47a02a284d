"""Trace files of version 1, which knew Medusa's heads alone, as files of version 2."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from medusa_core.trees.origin import ROOT, Origin


def upgraded(trace: dict[str, Any]) -> dict[str, Any]:
    """A trace of version 1 as one of version 2. Raises ValueError where needed parts are missing."""
    try:
        config = dict(trace["config"])
        method, rule = config.pop("method"), config.pop("acceptance")
        thresholds = {name: config.pop(name) for name in ("epsilon", "delta")}
        config["drafter"] = {"name": method, "settings": {}}
        config["acceptance"] = {"name": rule, "settings": thresholds if rule == "typical" else {}}
        steps = [
            {**step, "nodes": [_with_origin(node, method) for node in step["nodes"]]}
            for step in trace["steps"]
        ]
    except KeyError as error:
        raise ValueError(f"{error.args[0]} is missing") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError("config, steps or nodes are not the records they should be") from error
    return {**trace, "schema_version": 2, "config": config, "steps": steps}


def _with_origin(node: dict[str, Any], method: str) -> dict[str, Any]:
    """A node of version 1, whose only drafter was Medusa's; head 0 was the root."""
    own = {name: value for name, value in node.items() if name not in ("head", "rank")}
    head, rank = node["head"], node["rank"]
    if head is None:
        raise KeyError("head")
    root = type(head) is int and head == 0
    return {**own, "origin": asdict(ROOT if root else Origin(method, head, rank))}
