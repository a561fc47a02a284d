"""The run that the page opens with: greedy, so that plain decoding, shown beside it, writes the same text."""

from __future__ import annotations

from medusa_core.api import load
from medusa_core.config import GenerationConfig
from ui.records.examples import recordings


def test_plain_decoding_writes_the_text_of_the_opening_run():
    trace = recordings()[0].trace
    engine = load(dtype=trace["model"]["dtype"])
    config = GenerationConfig.of(method="none", max_new_tokens=len(trace["output"]["token_ids"]))
    plain = [token for step in engine.stream(trace["prompt"]["token_ids"], config) for token in step.emitted]
    assert plain == trace["output"]["token_ids"]
