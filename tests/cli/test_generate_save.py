"""``generate --save``: progress on disk, Ctrl-C, damage, other settings, a second process, more tokens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import tiny
from paths import ROOT

from medusa_core.longrun import folder, memory, run, segments
from medusa_core.longrun.run import SavedRun
from medusa_core.training.folder_lock import locked_folder

SHORT = 16
FLAGS = ["--ignore-eos", "--device", "cpu", "--dtype", "float32", "--context", "900", "--extend", "window"]


@pytest.fixture(autouse=True)
def _short_segments(monkeypatch):
    for module in (segments, folder, run, memory):
        monkeypatch.setattr(module, "SEGMENT", SHORT)


@pytest.fixture
def generate(command, engine_folder, tmp_path):
    """Run the command on the tiny model; later flags win."""

    def call(*flags, tokens=100):
        base = ["generate", "abc", "--model", engine_folder, "--max-new-tokens", tokens, *FLAGS]
        return command([*base, "--save", tmp_path / "run", *flags])

    return call


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_tokens_text_and_speed_are_on_disk_and_a_finished_run_says_so(generate, tmp_path, monkeypatch):
    code, out, err = generate("--json")
    assert code == 0, err
    output, files = json.loads(out), tmp_path / "run"
    tokens = [token for line in lines_of(files / "segments.jsonl") for token in line["tokens"]]
    assert output["token_ids"] == tokens
    assert len(tokens) == 100
    assert (files / "text.txt").read_text() == output["text"] == tiny.tiny_tokenizer().decode(tokens)
    assert output["memory"]["estimated"] > 0
    assert "context 900 in a window of 96" in err
    assert "memory for" in err
    assert "100 tokens in" in err
    assert "complete already" not in err
    monkeypatch.setattr(SavedRun, "_warm_up", None)  # nothing is decoded again
    code, again, err = generate("--json")
    assert (code, json.loads(again)) == (0, output)
    assert f"complete already in {files}" in err


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.usefixtures("heard_interrupts")
def test_a_signal_ends_it_with_what_is_on_disk_and_the_command_goes_on(
    generate, tmp_path, monkeypatch, number, exit_code
):
    whole = json.loads(generate("--json", "--save", tmp_path / "whole")[1])
    steps = SavedRun.steps

    def interrupted(self):
        for index, step in enumerate(steps(self)):
            yield step
            if index == 20:
                signal.raise_signal(number)

    with monkeypatch.context() as patch:
        patch.setattr(SavedRun, "steps", interrupted)
        code, out, err = generate("--json")
    stopped = json.loads(out)
    assert (code, stopped["finish_reason"]) == (exit_code, "cancelled")
    assert f"stopped at {stopped['new_tokens']} tokens: the same command goes on" in err
    assert (tmp_path / "run" / "text.txt").read_text() == stopped["text"]
    code, out, err = generate("--json")
    assert f"going on after {stopped['new_tokens'] // SHORT * SHORT} tokens" in err
    assert json.loads(out)["token_ids"] == whole["token_ids"]
    code, out, err = generate("--json", tokens=150)  # more of the same text
    assert json.loads(out)["token_ids"][:100] == whole["token_ids"]
    assert json.loads(out)["new_tokens"] == 150
    assert "holds 150 tokens, --max-new-tokens is 100: raise it" in generate()[2]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--temperature", "0.5"], "other settings (temperature 0.0, now 0.5)"),
        (["--method", "none"], "began with"),
        (["--context", "800"], "another model (context 900"),
        (["--tree", "cartesian-2"], "other settings (tree "),
    ],
)
def test_other_settings_are_refused(generate, flags, words):
    generate(tokens=20)
    code, _, err = generate(*flags, tokens=20)
    assert code == 2
    assert words in err
    assert "or choose another --save" in err


def test_another_model_or_prompt_is_refused(generate, command, engine_folder, tmp_path):
    generate(tokens=20)
    base = ["--max-new-tokens", 20, *FLAGS, "--save", tmp_path / "run", "--model"]
    assert "another prompt" in command(["generate", "abd", *base, engine_folder])[2]
    other = tiny.build_engine(tiny.frequent_zero_model(2, seed=5), None)
    other.target.model.save_pretrained(tmp_path / "other")
    other.tokenizer.save_pretrained(tmp_path / "other")
    code, _, err = command(["generate", "abc", *base, tmp_path / "other", "--method", "none"])
    assert (code, "another model (weights" in err) == (2, True)


def spoil(files, number, line):
    """Put another line in the place of one."""
    lines = (files / "segments.jsonl").read_text().splitlines()
    lines[number] = line
    (files / "segments.jsonl").write_text("\n".join(lines) + "\n")


def change(files, number, **values):
    """Give fields of a segment other values."""
    lines = lines_of(files / "segments.jsonl")
    spoil(files, number, json.dumps(lines[number] | values))


def change_run(files, **values):
    record = json.loads((files / "run.json").read_text())
    (files / "run.json").write_text(json.dumps(record | values))


def huge_sum(files):
    change(files, -1, sums=lines_of(files / "segments.jsonl")[-1]["sums"] | {"steps": 10**400})


def other_token(files):
    tokens = lines_of(files / "segments.jsonl")[0]["tokens"]
    change(files, 0, tokens=[(tokens[0] + 1) % 4, *tokens[1:]])


def of_nothing(files):
    end = lines_of(files / "segments.jsonl")[-1]["end"]
    change(files, -1, end=end | {"memory": end["memory"] | {"estimated": 0}})


def cut_line(files):
    file = files / "segments.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))


DAMAGE = {
    "no reason": lambda files: change(files, -1, end=None),
    "another reason": lambda files: change(files, -1, end={"finish_reason": "tired", "memory": {}}),
    "memory of nothing": of_nothing,
    "settings": lambda files: change_run(files, settings=[1]),
    "surroundings": lambda files: change_run(files, surroundings="torch"),
    "a huge sum": huge_sum,
    "no JSON": lambda files: spoil(files, 1, "{"),
    "a gap": cut_line,
    "no token": lambda files: change(files, 0, tokens=[99] * SHORT),
    "another token": other_token,
    "a word": lambda files: spoil(files, 1, '"abc"'),
    "no sums": lambda files: change(files, 1, sums=None),
    "no phases": lambda files: change(files, 1, sums={"phase_ms": {}}),
    "run": lambda files: (files / "run.json").write_text("[]"),
    "another folder": lambda files: (files / "run.json").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_named_with_the_way_out(generate, tmp_path, damage):
    generate(tokens=40)
    DAMAGE[damage](tmp_path / "run")
    code, _, err = generate(tokens=40)
    assert code == 2
    assert str(tmp_path / "run") in err
    assert "choose another --save" in err or "empty or new folder" in err


def test_a_text_that_is_gone_is_written_again_and_no_link_is_written_through(generate, tmp_path):
    generate(tokens=40)
    text, victim = tmp_path / "run" / "text.txt", tmp_path / "victim"
    written = text.read_bytes()
    text.unlink()
    victim.write_text("mine")
    (tmp_path / "run" / "text.txt.partial").symlink_to(victim)
    code, _, err = generate(tokens=40)
    assert code == 0, err
    assert text.read_bytes() == written
    assert not text.is_symlink()
    assert victim.read_text() == "mine"


def test_a_second_process_and_flags_that_do_not_fit_are_refused(generate, tmp_path):
    with locked_folder(tmp_path / "run"):
        code, _, err = generate()
        assert (code, "works in" in err, "choose another --save" in err) == (2, True, True)
    assert "leave one of them out" in generate("--trace", tmp_path / "t.json")[2]


@pytest.mark.slow
def test_a_process_that_is_killed_loses_nothing(engine_folder, tmp_path):
    """Killed three times and started again, a run has the text of one that went through."""
    words = [sys.executable, "-m", "medusa_core", "generate", "abc", "--model", str(engine_folder), *FLAGS]
    words += ["--max-new-tokens", "800", "--temperature", "0.8", "--save"]
    subprocess.run([*words, str(tmp_path / "whole")], cwd=ROOT, check=True, capture_output=True)
    for pause in (0.3, 0.6, 0.1):
        process = subprocess.Popen([*words, str(tmp_path / "killed")], cwd=ROOT, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (tmp_path / "killed" / "segments.jsonl").exists():
            time.sleep(0.02)
        time.sleep(pause)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run([*words, str(tmp_path / "killed")], cwd=ROOT, check=True, capture_output=True)
    killed, whole = ((tmp_path / name) for name in ("killed", "whole"))
    assert (killed / "text.txt").read_bytes() == (whole / "text.txt").read_bytes()
    texts = [[line["tokens"] for line in lines_of(folder / "segments.jsonl")] for folder in (killed, whole)]
    assert texts[0] == texts[1]
