"""The command line as a user runs it: output, JSON on the last line, one-line errors with exit code 2."""

from __future__ import annotations

import json

import pytest

from medusa_core.acceptance import rule_names
from medusa_core.drafters import methods_in_words
from medusa_core.errors import short_line
from medusa_core.evaluation.bench import ALL_PEERS
from medusa_core.trace.format import read_trace
from medusa_core.trees.tree import load_tree

KNOWN = f"{', '.join(ALL_PEERS)}, {methods_in_words()}"


@pytest.fixture
def run(command):
    return lambda *argv: command(argv)


def test_generate_prints_marked_text_and_the_output_object(run, engine_folder):
    arguments = [
        "generate", "abc", "--model", engine_folder, "--max-new-tokens", 30, "--dtype", "float32", "--json",
    ]  # fmt: skip
    code, out, err = run(*arguments)
    assert code == 0
    text, last = out.rsplit("\n", 2)[:2]
    output = json.loads(last)
    assert output["new_tokens"] == len(output["token_ids"]) == 30
    assert text.replace("[", "").replace("]", "") == output["text"]
    drafted = text.count("[")
    assert drafted == output["new_tokens"] - output["steps"] > 0
    assert "float32 on cpu (as asked)" in err


def test_a_stop_string_ends_the_printed_text_too(run, engine_folder):
    common = ["generate", "abc", "--model", engine_folder, "--dtype", "float32", "--marks", "none", "--json"]
    whole = json.loads(run(*common)[1].splitlines()[-1])["text"]
    stop = whole[9:11]
    _, out, err = run(*common, "--stop", stop)
    output = json.loads(out.splitlines()[-1])
    assert out.splitlines()[0] == output["text"] == whole[: whole.index(stop)]
    assert "finished by stop" in err


def test_the_trace_file_holds_the_run(run, engine_folder, tmp_path):
    file = tmp_path / "run.json"
    code, out, _ = run(
        "generate", "abc", "--model", engine_folder, "--acceptance", "typical", "--temperature", 0.7,
        "--max-new-tokens", 12, "--trace", file, "--json",
    )  # fmt: skip
    assert code == 0
    trace = read_trace(file)
    record = json.loads(out.splitlines()[-1])
    assert {**trace.output.model_dump(), "distinct": record["distinct"]} == record
    assert trace.config.acceptance.name == "typical"


def test_tree_show_json(run):
    code, out, _ = run("tree", "show", "mc_sim_7b_63", "--json")
    record = json.loads(out)
    tree = load_tree("mc_sim_7b_63")
    assert code == 0
    assert record["nodes"] == 64
    assert record["choices"] == [list(choice) for choice in tree.choices]
    assert record["choices"] == sorted(record["choices"], key=lambda c: (len(c), c))
    assert len(record["paths"]) == 42
    for node, row in enumerate(record["mask"]):
        seen = {node}
        while record["parents"][min(seen)] >= 0:
            seen.add(record["parents"][min(seen)])
        assert {column for column, allowed in enumerate(row) if allowed} == seen


def test_tree_show_draws_and_search_finds(run, tmp_path):
    code, out, _ = run("tree", "show", "cartesian-2x2")
    assert code == 0
    assert "head 2, guess 2" in out
    file = tmp_path / "accuracies.json"
    file.write_text("[[0.6, 0.2], [0.5, 0.1]]", encoding="utf-8")
    code, out, _ = run("tree", "search", "--accuracies", file, "--nodes", 2, "--json")
    assert json.loads(out) == {"choices": [[0], [0, 0]], "expected_length": 1.9}


def test_bench_measures_all_methods_and_they_agree(run, engine_folder, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "abc"}\n\n{"turns": ["hello"]}\n', encoding="utf-8")
    code, out, _ = run(
        "bench", "--prompts", prompts, "--model", engine_folder, "--runs", 2, "--max-new-tokens", 16,
        "--dtype", "float32", "--json",
    )  # fmt: skip
    assert code == 0
    record = json.loads(out.splitlines()[-1])
    assert set(record["methods"]) == {"none", "medusa", "hf"}
    assert record["machine"]["threads"] >= 1
    for method in record["methods"].values():
        assert method["identical_outputs"] == "2 of 2"
        assert method["tokens_per_second"] > 0
    none, medusa = record["methods"]["none"], record["methods"]["medusa"]
    assert none["tokens_per_step"] == none["overhead"] == none["speedup"] == 1.0
    assert medusa["tokens_per_step"] > 1
    assert medusa["tree_nodes"] == 4
    assert set(medusa["phase_ms"]) == {"propose", "verify", "accept", "commit"}


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["generate"], "give either a prompt in quotes or --prompt-ids"),
        (["generate", "a", "--prompt-ids", "1"], "give either"),
        (["generate", "--prompt-ids", "1,x"], "write numbers with commas"),
        (["generate", "--prompt-ids", "99999"], "use ids of this model's tokenizer"),
        (["generate", "a", "--temperature", "warm"], "invalid float value"),
        (["generate", "a", "--max-new-tokens", "0"], "the smallest is 1"),
        (["generate", "a", "--method", "magic"], f"use one of auto, {methods_in_words()}"),
        (["generate", "a", "--acceptance", "magic"], f"use one of {', '.join(rule_names())}"),
        (["generate", "a", "--tree", "magic"], "no tree is called 'magic'"),
        (["generate", "a", "--tree", "/"], "the tree / is a folder: name a .json file"),
        (["export", "replay", "no.json", "a.html"], "name a file that generate --trace or Share wrote"),
        (["generate", "a", "--heads", "/nowhere"], "there is no folder /nowhere"),
        (["generate", "a", "--trace", "/nowhere/t.json"], "there is no folder /nowhere, make it first"),
        (
            ["bench", "--methods", "none,magic"],
            short_line(f"--methods is 'none,magic': use all, or each at most once of {KNOWN}"),
        ),
        (["bench", "--methods", "none,HF"], "--methods is 'none,HF': did you mean hf?"),
        (["roofline", "--model", "llama-7x"], "did you mean llama-7b?"),
        (["bench", "--prompts", "/nowhere.jsonl"], "cannot read the prompts"),
        (["bench", "--runs", "0"], "--runs is 0: give 1 to 1000 rounds"),
        (["bench", "--runs", "1001", "--batch", "2"], "--runs is 1001: give 1 to 1000 rounds"),
        (["bench", "--limit", "0"], "--limit starts at 1"),
    ],
)
def test_bad_input_is_one_line_with_cause_and_fix(run, engine_folder, argv, words):
    code, _, err = run(*argv, *(["--model", engine_folder] if argv[0] in ("generate", "bench") else []))
    message = err.strip().splitlines()[-1]
    assert code == 2
    assert message.startswith("error: ")
    assert words in message
