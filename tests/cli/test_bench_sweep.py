"""``bench --sweep``, ``--batch`` and ``--shape``: a table, a record as the last line, errors in one line."""

from __future__ import annotations

import json

import pytest

from medusa_core.cli import bench_sweep
from medusa_core.evaluation import random_model
from medusa_core.hardware.shapes import ModelShape
from medusa_core.trees.search import assumed_accuracies

SHAPE = ModelShape("llama-7b", 32, 48, 4, 2, 8, 2, 64)


@pytest.fixture
def bench(command, slow_machine, engine_folder):
    def call(*flags, model=True):
        own = ["--model", engine_folder, "--prompts", prompts(engine_folder)] if model else []
        return command(["bench", *own, "--max-new-tokens", 6, "--runs", 1, "--json", *flags])

    return call


def prompts(folder):
    file = folder.parent / "prompts.jsonl"
    file.write_text('{"prompt": "abc"}\n{"prompt": "defg"}\n', encoding="utf-8")
    return file


def record(out):
    return json.loads(out.splitlines()[-1])


def test_the_gain_by_batch(bench):
    code, out, _ = bench(
        "--batch", "1,2", "--methods", "none,medusa,hf", "--dtype", "float32", "--tree", "cartesian-2x2"
    )
    found = record(out)
    assert code == 0
    assert found["sweep"] == "batch"
    assert [(one["value"], one["method"]) for one in found["points"]] == [
        (1, "none"), (1, "medusa"), (2, "none"), (2, "medusa"),
    ]  # fmt: skip
    assert all(one["over_limit"] > 0 and one["gain"] > 0 for one in found["points"])
    assert "hf is left out: a sweep measures our own methods." in out
    assert max(map(len, out.splitlines()[:-1])) <= 80


def test_dtypes_are_loaded_one_after_the_other(bench):
    found = record(bench("--sweep", "dtype", "--methods", "none", "--device", "cpu")[1])
    assert [one["value"] for one in found["points"]] == ["float32", "bfloat16"]
    assert found["model"]["dtype"] == "swept"


def test_values_of_a_sweep(bench):
    found = record(bench("--sweep", "context", "--values", "16,32", "--methods", "none")[1])
    assert [one["value"] for one in found["points"]] == [16, 32]
    usual = record(bench("--sweep", "nodes", "--dtype", "float32")[1])
    assert [one["value"] for one in usual["points"]][:4] == [1, 2, 4, 8]
    plain = usual["points"][0]["tokens_per_second"]
    for one in usual["points"]:
        assert one["gain"] == pytest.approx(one["tokens_per_second"] / plain, abs=1e-3)


def test_a_shape_says_nothing_of_tokens(bench, monkeypatch, tmp_path):
    monkeypatch.setattr(bench_sweep, "known_shapes", lambda: {"llama-7b": SHAPE})
    code, out, _ = bench("--shape", "7b", "--dtype", "float32", "--device", "cpu", model=False)
    assert code == 0
    found = record(out)
    assert found["model"]["name"] == "llama-7b, random weights + 5 Medusa heads"
    assert [one["value"] for one in found["points"]] == [1, 16, 32, 64]
    assert "tokens" not in out.replace("--max-new-tokens", "")
    file = tmp_path / "accuracies.json"
    file.write_text(json.dumps(assumed_accuracies(5)), encoding="utf-8")
    flags = ("--shape", "7b", "--values", "1,16", "--dtype", "float32", "--acceptance-from", file)
    _, out, _ = bench(*flags, model=False)
    plain, tree = record(out)["points"]
    assert plain["simulated_tokens_per_step"] == 1.0 < tree["simulated_tokens_per_step"]
    assert "Simulated: what heads of the given accuracies would keep of these trees." in out


def test_a_shape_that_does_not_fit(bench, monkeypatch):
    monkeypatch.setattr(random_model, "free_memory", lambda device: 2**30)
    code, _, err = bench("--shape", "33b", "--dtype", "bfloat16", "--device", "cpu", model=False)
    assert code == 2
    assert "llama-33b needs about" in err
    assert "1.07 GB are free: take a smaller model or a larger machine" in err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--batch", "1,x"), "--batch is '1,x'"),
        (("--batch", ""), "--batch is ''"),
        (("--batch", "0"), "--batch is '0': give whole numbers from 1 to 1024"),
        (("--sweep", "nodes", "--values", "300"), "give whole numbers from 1 to 256"),
        (("--sweep", "nodes", "--batch", "2"), "leave out --sweep nodes"),
        (("--sweep", "dtype", "--values", "2"), "--values are those of"),
        (("--values", "2"), "give --sweep or --shape too"),
        (("--sweep", "nodes", "--acceptance-from", "a.json"), "give --shape too"),
        (("--sweep", "context", "--methods", "hf"), "a sweep measures our own"),
        (("--sweep", "nodes", "--methods", "none,ngram"), "leave --methods out, or use --sweep context"),
        (("--sweep", "nodes", "--methods", "none"), "measures Medusa's trees beside plain decoding"),
    ],
)
def test_flags_that_contradict_each_other(bench, flags, words):
    code, _, err = bench(*flags)
    assert code == 2
    assert words in err
