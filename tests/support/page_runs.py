"""A run as the page asks for it, and its outcome."""

from __future__ import annotations

from ui.records.settings import DEFAULT, RunSettings, Selection
from ui.runs.chat import ChatRequest
from ui.runs.compare import CompareRequest
from ui.runs.decode import DecodeRequest

SETTINGS = {
    "temperature": 0.0, "epsilon": 0.09, "delta": 0.3, "max_new_tokens": 60, "acceptance": "match",
    "tree": DEFAULT, "budget": 6, "seed": 0, "heads": DEFAULT, "selection": Selection(),
}  # fmt: skip
MINE = Selection().with_tree([[0], [1], [0, 0], [0, 1], [0, 0, 0]])
SHIPPED = [[0], [1], [0, 0]]  # of conftest's engine_folder


def run_decode(session, prompt, settings, flag):
    return session.run(DecodeRequest(prompt, RunSettings.of(**settings)), flag)


def run_chat(session, text, state, settings, flag):
    return session.run(ChatRequest(text, state, RunSettings.of(**settings)), flag)


def run_compare(session, prompt, settings, repetitions, flag):
    return session.run(CompareRequest(prompt, RunSettings.of(**settings), repetitions), flag)


def trace_of(updates):
    assert [u.status for u in updates if u.problem] == []
    return updates[-1].trace


def problem_of(updates):
    assert updates[-1].problem
    return updates[-1].status
