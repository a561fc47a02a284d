"""``generate --prompts``: a result a prompt, in order; one that fails leaves the others alone."""

from __future__ import annotations

import json

import pytest

from medusa_core.engine import Engine
from medusa_core.errors import MedusaError

LINES = [
    '{"prompt": "abc"}', "no JSON", '{"text": "defabc"}', '{"prompt": "ab\\u0000"}',
    '{"prompt": "\\ud800 half a pair"}', '{"turns": ["hig"]}', '{"prompt": 5}', '{"question": "a"}',
]  # fmt: skip
WORDS = ["abc", "defabc", "hig", "a"]


@pytest.fixture
def run(command, engine_folder, tmp_path):
    def call(*flags, lines=LINES, file=None):
        if file is None:
            file = tmp_path / "prompts.jsonl"
            file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        common = ["--model", engine_folder, "--dtype", "float32", "--max-new-tokens", 12]
        return command(["generate", "--prompts", file, *common, *flags])

    return call


def results(out):
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("batch", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_line_a_prompt_in_the_order_of_the_file(run, command, engine_folder, batch):
    code, out, err = run("--json", "--batch", batch)
    found = results(out)
    assert code == 2
    assert [list(one) for one in found] == [
        ["prompt", "output" if number in (0, 2, 5, 7) else "error"] for number in range(len(LINES))
    ]
    decoded = [one for one in found if "output" in one]
    assert [one["prompt"] for one in decoded] == WORDS
    assert [found[number]["prompt"] for number in (1, 3, 4, 6)] == [
        "no JSON", "ab\0", "\ud800 half a pair", LINES[6],
    ]  # fmt: skip
    assert "U+0000" in found[3]["error"]
    assert "48 tokens after 4 prompts in " in err
    assert f"error: 4 prompts of {len(LINES)} failed, the first one so: {found[1]['error']}" in err
    for one in decoded:  # each as the command for one prompt gives it
        common = ["--model", engine_folder, "--dtype", "float32", "--max-new-tokens", 12, "--json"]
        alone = json.loads(command(["generate", one["prompt"], *common])[1].splitlines()[-1])
        assert set(alone) == set(one["output"])
        for name in ("text", "token_ids", "finish_reason", "new_tokens", "steps", "tokens_per_step"):
            assert alone[name] == one["output"][name]


def test_a_text_of_its_own_length_for_each(run):
    """A stop string ends one text and not the others."""
    whole = [one["output"]["text"] for one in results(run("--json", lines=[LINES[0], LINES[2]])[1])]
    stop = next(whole[0][at : at + 2] for at in range(2, 9) if whole[0][at : at + 2] not in whole[1])
    cut = [one["output"] for one in results(run("--json", "--stop", stop, lines=[LINES[0], LINES[2]])[1])]
    assert [one["finish_reason"] for one in cut] == ["stop", "length"]
    assert [one["text"] for one in cut] == [whole[0][: whole[0].index(stop)], whole[1]]


def test_prompts_that_fail_while_they_run_leave_the_others(run, monkeypatch):
    """As when memory runs out: those that ran then have the error, those behind them are decoded."""
    real, calls = Engine.stream_batch, []

    def failing(self, prompts, config, size):
        calls.append(size)
        for number, step in real(self, prompts, config, size):
            if len(calls) == 1 and step.index == 2:
                raise MedusaError("too little memory")
            yield number, step

    monkeypatch.setattr(Engine, "stream_batch", failing)
    found = results(run("--json", "--batch", 2, lines=['{"prompt": "abc"}'] * 5)[1])
    assert [one.get("error") for one in found] == ["too little memory"] * 2 + [None] * 3
    assert len({tuple(one["output"]["token_ids"]) for one in found[2:]}) == 1


def test_results_for_a_reader(run):
    _, out, _ = run(lines=LINES[:2])
    assert out.splitlines()[0] == "--- 1 of 2 ---"
    assert out.splitlines()[2:4] == [
        "--- 2 of 2 ---",
        'error: it is not JSON (Expecting value, column 1): write {"prompt": "…"} or {"turns": ["…"]}',
    ]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--batch", "0"), "--batch is 0: give 1 to 1024"),
        (("--batch", str(10**20)), "give 1 to 1024"),
        (("abc",), "give either a prompt or --prompts"),
        (("--trace", "run.json"), "--trace writes one run"),
        (("--method", "nobody"), "--method is 'nobody'"),
    ],
)
def test_flags_that_do_not_go_together(run, flags, words):
    code, out, err = run(*flags)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_files_without_any_prompt(run, tmp_path):
    code, out, err = run("--json", lines=["", " "])
    assert (code, out) == (2, "")
    assert "holds no prompt" in err
    assert "cannot read the prompts" in run(file=tmp_path / "none.jsonl")[2]
    code, out, err = run("--json", lines=["one", "two"])
    assert code == 2
    assert [list(one) for one in results(out)] == [["prompt", "error"]] * 2
    assert err.splitlines()[-1].endswith("none of 2 prompts could be decoded: " + results(out)[0]["error"])


def test_a_batch_wants_prompts(command):
    code, _, err = command(["generate", "abc", "--batch", "2"])
    assert (code, "--batch says how many of --prompts" in err) == (2, True)
