"""A run of thousands of steps, repeated from a recorded run, as a server sends and keeps them."""

from __future__ import annotations

import itertools
import json
import zlib

from medusa_core.trace.packed import Tables, packed_step
from medusa_core.trace.run_record import RunRecord
from ui.records.messages import message_begin, message_steps


def repeated(trace: dict, steps: int) -> dict:
    """A trace of this many steps, whose cache grows as in a real run."""
    made, length = [], trace["steps"][0]["cache_length"]
    full = [step for step in trace["steps"] if step["bonus"]]
    for index, step in enumerate(itertools.islice(itertools.cycle(full), steps)):
        made.append({**step, "index": index, "cache_length": length})
        length += len(step["path"])
    return {**trace, "steps": made}


def kept(trace: dict) -> RunRecord:
    """The record that a server keeps."""
    tables = Tables()
    record = RunRecord({name: trace[name] for name in ("model", "config", "prompt")}, tables)
    record.steps.add([packed_step(step, tables) for step in trace["steps"]])
    record.output = trace["output"]
    return record


def windows(record: RunRecord) -> list[str]:
    """A server's answers to the requests for its windows."""
    count = -(-len(record.steps) // 128)
    return [zlib.decompress(record.steps.window(number)).decode() for number in range(count)]


def numbered(key: str, message: str) -> str:
    """A message as sent to a page, with the key of its run."""
    return f'{{"kind": "numbered", "run": {json.dumps(key)}, "number": 1, "message": {message}}}'


def messages(run: str, trace: dict, together: int = 50) -> list[str]:
    """The beginning, then the steps, ``together`` of them per message."""
    tables, told = Tables(), [message_begin(run, trace)]
    for first in range(0, len(trace["steps"]), together):
        steps = [packed_step(step, tables) for step in trace["steps"][first : first + together]]
        told.append(message_steps(run, first, {**tables.grown(), "steps": steps}))
    return told
