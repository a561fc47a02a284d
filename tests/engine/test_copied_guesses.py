"""A copied guess says how far back its token stands, also in a trace file, where old ones say nothing."""

from __future__ import annotations

import json

import pytest
import tiny

from medusa_core.config import GenerationConfig
from medusa_core.trace.builder import TraceBuilder
from medusa_core.trace.format import read_trace
from medusa_core.trace.packed import packed

TEXT = [1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3]


def trace_of(engine, method, text=TEXT, **options):
    config = GenerationConfig.of(method=method, max_new_tokens=24, ignore_eos=True, **options)
    builder = TraceBuilder(engine, config, text)
    for step in engine.stream(text, config):
        builder.add(step)
    return builder.finish()


@pytest.mark.parametrize("method", ["lookup", "ngram", "suffix", "medusa+suffix"])
def test_the_token_stands_where_the_guess_says(engine, method):
    trace = trace_of(engine, method, lookup_ngram=1)
    text = [*TEXT, *trace["output"]["token_ids"]]
    copied = 0
    for step in trace["steps"]:
        for node in step["nodes"]:
            back = node["origin"]["back"]
            if node["origin"]["by"] in ("", "medusa"):
                assert back is None
                continue
            source = step["cache_length"] + node["depth"] - back
            assert 0 <= source <= step["cache_length"]
            known = text[: step["cache_length"] + 1]  # the root is the last token of the text
            assert known[source] == node["token_id"]
            copied += 1
    assert copied > 5


def test_what_is_copied_beyond_the_text_s_end_stands_twice_as_far_back(engine):
    """Behind a, a lookup copies a again and again: each time one token further from its source."""
    step = trace_of(engine, "lookup", [7, 7, 7], lookup_tokens=4)["steps"][0]
    root = step["nodes"][0]["token_id"]
    drafter_text = [7, 7, 7, root]
    for node in step["nodes"][1:]:
        assert drafter_text[step["cache_length"] + node["depth"] - node["origin"]["back"]] == node["token_id"]


def test_the_compact_form_keeps_it_and_old_files_without_it_are_read(engine, tmp_path):
    trace = packed(trace_of(engine, "medusa+ngram"))
    lengths = {len(origin) for origin in trace["origins"]}
    assert lengths == {5, 6}  # heads' guesses are as they were
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(trace), "utf-8")
    records = read_trace(file).model_dump(mode="json")["steps"]
    backs = {node["origin"]["back"] for step in records for node in step["nodes"]}
    assert backs > {None}
    trace["origins"] = [origin[:5] for origin in trace["origins"]]
    trace["prompt"].pop("texts")
    file.write_text(json.dumps(trace), "utf-8")
    old = read_trace(file)
    assert {node.origin.back for step in old.steps for node in step.nodes} == {None}
    assert old.prompt.texts == []


def test_the_prompt_s_tokens_have_texts_of_their_own(engine):
    trace = trace_of(engine, "ngram")
    assert trace["prompt"]["texts"] == [engine.token_text(token) for token in TEXT]
    assert tiny.PROMPT  # the shared model's tokenizer is the one of these texts
