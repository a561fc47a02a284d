"""The flags of the penalty and min-p: what they do, what is said of them, and what transformers is asked."""

from __future__ import annotations

import json

import pytest
import tiny
import torch

from medusa_core.config import GenerationConfig
from medusa_core.evaluation.peers import PeerError, PeerRunner
from medusa_core.options import idle_options
from medusa_core.trace.format import read_trace

PENALTY = ["--penalty", "1.4", "--penalty-window", "12"]


def test_generate_takes_them_and_tells_distinct_n(command, engine_folder, tmp_path, engine):
    file = tmp_path / "run.json"
    code, out, _ = command(
        ["generate", "abc", "--model", engine_folder, "--dtype", "float32", "--max-new-tokens", "20",
         *PENALTY, "--trace", str(file), "--json"]
    )  # fmt: skip
    assert code == 0
    record = json.loads(out.splitlines()[-1])
    config = GenerationConfig.of(max_new_tokens=20, penalty=1.4, penalty_window=12, method="none")
    assert record["token_ids"] == tiny.emitted(engine.stream(engine.encode("abc"), config))
    assert len(record["distinct"]) == 4
    assert record["distinct"][0] == round(len(set(record["token_ids"])) / 20, 4)
    assert read_trace(file).config.penalty == 1.4


@pytest.mark.parametrize(
    ("settings", "idle"),
    [
        ({"penalty": 1.2}, {}),
        ({"min_p": 0.1, "temperature": 0.5}, {}),
        ({"penalty": 1.2, "penalty_window": 0}, {"penalty": "--penalty-window 0"}),
        ({"penalty_window": 8}, {"penalty_window": "--penalty 1"}),
        ({"min_p": 0.1}, {"min_p": "--temperature 0"}),
    ],
    ids=str,
)
def test_what_counts_for_nothing_is_told(settings, idle):
    assert idle_options(GenerationConfig.of(**settings)) == idle


def test_bench_compares_methods_under_a_penalty_and_leaves_transformers_out(command, engine_folder, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "abcab"}\n', encoding="utf-8")
    code, out, _ = command(
        ["bench", "--model", engine_folder, "--dtype", "float32", "--prompts", str(prompts), "--runs", "1",
         "--methods", "none,medusa,hf", "--max-new-tokens", "12", *PENALTY, "--json"]
    )  # fmt: skip
    assert code == 0
    record = json.loads(out.splitlines()[-1])
    assert (record["settings"]["penalty"], record["settings"]["penalty_window"]) == (1.4, 12)
    assert record["methods"]["medusa"]["identical_outputs"] == "1 of 1"
    assert list(record["left_out"]) == ["hf"]
    said = " ".join(out.split())
    assert "With a penalty of 1.4 on the last 12 tokens." in said
    assert "hf is left out: transformers has no penalty on the last tokens alone" in said


def test_transformers_is_asked_for_min_p(engine):
    """And draws what it draws when it is asked itself."""
    peer = PeerRunner(engine, "hf", GenerationConfig(temperature=0.9, min_p=0.3, max_new_tokens=20))
    ids = torch.tensor([tiny.PROMPT])
    torch.manual_seed(0)
    wanted = engine.target.model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, pad_token_id=0,
        do_sample=True, temperature=0.9, top_k=0, min_p=0.3,
    )[0, len(tiny.PROMPT) :]  # fmt: skip
    assert peer(tiny.PROMPT).tokens == wanted.tolist()


def test_a_window_of_nothing_is_no_penalty_for_transformers_either(engine):
    config = GenerationConfig(penalty=1.4, penalty_window=0, max_new_tokens=4)
    PeerRunner(engine, "hf", config).prepare(tiny.PROMPT)
    with pytest.raises(PeerError, match="repetition_penalty"):
        PeerRunner(engine, "hf", config.changed(penalty_window=1)).prepare(tiny.PROMPT)
