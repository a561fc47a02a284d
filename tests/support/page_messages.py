"""The steps of a trace as the messages of a live run, one each."""

from __future__ import annotations

from medusa_core.trace.packed import Tables, packed_step
from ui.records.messages import message_steps


def step_messages(run: str, trace: dict) -> list[str]:
    tables = Tables()
    packed = [(packed_step(step, tables), tables.grown()) for step in trace["steps"]]
    return [
        message_steps(run, number, {**news, "steps": [step]}) for number, (step, news) in enumerate(packed)
    ]
