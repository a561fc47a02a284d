"""A drafter that reads a part of the cache says which rows it saw, and the trace keeps that."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import tiny

from medusa_core.config import GenerationConfig
from medusa_core.drafters.ngram import NgramDrafter
from medusa_core.errors import MedusaError
from medusa_core.trace.builder import TraceBuilder, write_trace
from medusa_core.trace.format import parse_trace, read_trace
from medusa_core.trace.packed import packed, unpacked

CONFIG = GenerationConfig.of(method="ngram", max_new_tokens=12)


def run(engine):
    builder = TraceBuilder(engine, CONFIG, tiny.PROMPT)
    for step in engine.stream(tiny.PROMPT, CONFIG):
        builder.add(step)
    return builder.finish()


@pytest.fixture
def trace(engine, monkeypatch):
    """Of a drafter that says of every step but the first that it saw two rows at either end."""
    propose = NgramDrafter.propose

    def partial(self, root, depth):
        tree, length = propose(self, root, depth), len(tiny.PROMPT) + self.steps
        self.steps += 1
        return tree if self.steps == 1 else replace(tree, drafter_rows=[(0, 2), (length - 2, length)])

    monkeypatch.setattr(NgramDrafter, "steps", 0, raising=False)
    monkeypatch.setattr(NgramDrafter, "propose", partial)
    return run(engine)


def test_the_trace_keeps_them_in_all_its_forms(trace, tmp_path):
    first, *others = trace["steps"]
    assert "drafter_rows" not in first
    assert all(step["drafter_rows"][0] == [0, 2] for step in others)
    assert unpacked(packed(trace)) == trace
    write_trace(trace, tmp_path / "trace.json")
    read = read_trace(tmp_path / "trace.json")
    assert [step.drafter_rows for step in read.steps] == [step.get("drafter_rows") for step in trace["steps"]]
    assert packed(read.model_dump(mode="json")) == packed(trace)


def test_a_drafter_that_says_nothing_leaves_the_trace_as_it_was(engine):
    assert all("drafter_rows" not in step for step in run(engine)["steps"])


@pytest.mark.parametrize("ranges", [[[0, 10_000]], [[2, 2]], [[3, 4], [1, 2]], [[0, 2, 3]], [[-1, 2]]])
def test_ranges_that_cannot_be_are_refused(trace, ranges):
    trace["steps"][1]["drafter_rows"] = ranges
    with pytest.raises(MedusaError, match="drafter_rows"):
        parse_trace(json.dumps(trace).encode(), "the file")
