"""What a trace says of each node: other answers, where a copied guess stands, what the penalty changed."""

from __future__ import annotations

import copy
import json
import math

import plain_penalty
import pytest
import tiny
import torch

from medusa_core.acceptance.sampling import entropy, probabilities
from medusa_core.config import GenerationConfig
from medusa_core.errors import MedusaError
from medusa_core.trace.alternatives import TEMPERATURES, answers
from medusa_core.trace.format import RunTrace, parse_trace, read_trace
from medusa_core.trace.packed import packed, unpacked


def recorded(engine, **settings):
    """The trace builder of a run together with its steps."""
    return tiny.traced(engine, GenerationConfig.of(tree="cartesian-4x2x2", max_new_tokens=24, **settings))


def record(engine, **settings):
    """The trace of a run together with its steps."""
    builder, steps = recorded(engine, **settings)
    return builder.finish(), steps


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.3])
def test_the_alternatives_are_the_models_likeliest_tokens(engine, temperature):
    trace, steps = record(engine, acceptance="typical", temperature=temperature)
    for written, step in zip(trace["steps"], steps, strict=True):
        probs = probabilities(step.logits, temperature or 1.0)
        nodes = [row["node"] for row in written["after"]]
        parents = {node["parent"] for node in written["nodes"][1:]}
        assert nodes == sorted(parents | {written["path"][-1]})
        for row in written["after"]:
            best = sorted(range(probs.shape[1]), key=lambda t, row=row: -probs[row["node"], t].item())[:5]
            assert row["token_ids"] == best
            assert row["p"] == pytest.approx(probs[row["node"], best].tolist(), rel=1e-3)
            assert row["texts"] == [engine.token_text(token) for token in best]


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_p_at_another_temperature_follows_from_what_is_recorded(engine, temperature):
    trace, steps = record(engine, acceptance="typical", temperature=temperature)
    assert trace["temperatures"] == list(TEMPERATURES)
    for written, step in zip(trace["steps"], steps, strict=True):
        after = {row["node"]: row for row in written["after"]}
        for place, other in enumerate(TEMPERATURES):
            probs = probabilities(step.logits, other)
            for node in written["nodes"][1:]:
                row = after[node["parent"]]
                below = temperature * math.log(node["p"] / row["p"][0])
                expected = probs[node["parent"], node["token_id"]].item()
                assert math.exp(below / other - row["log_z"][place]) == pytest.approx(expected, rel=1e-2)
                known = entropy(probs)[node["parent"]].item()
                assert row["entropy"][place] == pytest.approx(known, rel=1e-3, abs=2e-4)


def test_places_where_few_tokens_are_possible_name_others_too():
    logits = torch.full((2, 64), -torch.inf).bfloat16()
    logits[:, 7:9] = 1
    found = answers(logits, 1.0, torch.tensor([0, 1]), torch.tensor([7, 3]))
    assert found.node_p.tolist() == [0.5, 0.0]
    assert found.p[0].tolist() == [0.5, 0.5, 0, 0, 0]
    assert len(set(found.tokens[0].tolist())) == 5


def test_sizes_are_the_models(engine):
    trace, _ = record(engine)
    config = engine.target.config
    assert trace["sizes"] == {
        "hidden": config.hidden_size,
        "vocabulary": engine.target.vocab_size,
        "layers": config.num_hidden_layers,
    }


def test_a_file_without_them_is_still_read(engine, tmp_path):
    trace, _ = record(engine)
    old = copy.deepcopy(trace)
    del old["sizes"], old["temperatures"]
    for step in old["steps"]:
        del step["after"]
    (tmp_path / "old.json").write_text(json.dumps(old), "utf-8")
    read = read_trace(tmp_path / "old.json")
    assert read.sizes is None
    assert all(step.after == [] for step in read.steps)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: row["p"].pop(), "5 tokens, 5 texts and 4 probabilities"),
        (lambda row: row["log_z"].pop(), "the run 5 temperatures"),
        (lambda row: row.update(node=99), "after node 99"),
    ],
)
def test_lists_that_do_not_fit_are_refused(engine, tmp_path, change, words):
    trace, _ = record(engine)
    change(trace["steps"][0]["after"][0])
    (tmp_path / "bad.json").write_text(json.dumps(trace), "utf-8")
    with pytest.raises(MedusaError, match=words):
        read_trace(tmp_path / "bad.json")


# --- A copied guess says how far back its token stands, also in a trace file, where old ones say nothing.


TEXT = [1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3]


def trace_of(engine, method, text=TEXT, **options):
    config = GenerationConfig.of(method=method, max_new_tokens=24, ignore_eos=True, **options)
    return tiny.recorded(engine, config, text).finish()


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


# --- What a trace says of a run with the penalty or min-p; runs without have the files they had before.


SETTINGS = {"penalty": 1.4, "penalty_window": 7}


def test_records_with_a_penalty_come_back(engine):
    builder, _ = recorded(engine, **SETTINGS, min_p=0.1, top_k=9, top_p=0.9, temperature=0.7)
    trace = builder.finish()
    assert unpacked(json.loads(json.dumps(packed(trace)))) == trace
    read = parse_trace(json.dumps(builder.ended().packed()).encode(), "it")
    assert read.model_dump() == trace
    kept = read.config
    assert (kept.penalty, kept.penalty_window, kept.min_p, kept.top_k, kept.top_p) == (1.4, 7, 0.1, 9, 0.9)


def test_a_run_without_is_recorded_as_it_was_before(engine):
    builder, _ = recorded(engine)
    text = json.dumps(builder.ended().packed())
    assert not [word for word in ("penal", "min_p", "top_k", "top_p") if word in text]
    read = RunTrace.model_validate(builder.finish()).config
    found = (read.penalty, read.penalty_window, read.min_p, read.top_k, read.top_p)
    assert found == (1.0, 1024, 0.0, 0, 1.0)


def test_the_likeliest_tokens_are_those_of_the_processed_logits(engine):
    trace, steps = record(engine, **SETTINGS)
    for written, step in zip(trace["steps"], steps, strict=True):
        p = torch.softmax(step.logits, dim=-1)
        for row in written["after"]:
            wanted = p[row["node"]].topk(5)
            assert row["token_ids"] == wanted.indices.tolist()
            assert row["p"] == pytest.approx(wanted.values.tolist(), abs=2e-4)


def test_the_models_own_choice_is_named_where_another_one_won(engine):
    """With the number of its copies in the window of that place, counted here from the whole context."""
    trace, steps = record(engine, **SETTINGS)
    text, found = list(tiny.PROMPT), 0
    for written, step in zip(trace["steps"], steps, strict=True):
        own, tokens = step.model_logits, step.tree.tokens.tolist()
        for row in written["after"]:
            context = [*text, *(tokens[node] for node in tiny.path_to(step.tree.parents, row["node"]))]
            slow = plain_penalty.penalised(own[row["node"]], context, 1.4, 7)
            assert torch.equal(slow, step.logits[row["node"]])
            best = int(own[row["node"]].argmax())
            if best == row["token_ids"][0]:
                assert "penalised" not in row
            else:
                assert row["penalised"] == {
                    "token_id": best,
                    "text": tiny.LETTERS[best],
                    "copies": context[-7:].count(best),
                }
                found += 1
        text += step.emitted
    assert found > 3


def test_a_damaged_entry_is_refused(engine):
    whole = recorded(engine, **SETTINGS)[0].ended().packed()
    place = next(i for i, step in enumerate(whole["steps"]) if "penalised" in step["after"])
    for entry in ([99, 0, 1], [-1, 0, 1], [0, 0, 0], [0, 0], [0, 10_000, 1]):
        damaged = copy.deepcopy(whole)
        damaged["steps"][place]["after"]["penalised"] = [entry]
        with pytest.raises(MedusaError, match="is not a trace of version 3"):
            parse_trace(json.dumps(damaged).encode(), "it")
