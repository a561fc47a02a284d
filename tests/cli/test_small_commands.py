"""Small commands: completion, ``tree show``, ``roofline`` and ``export replay``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest
from paths import ROOT

from medusa_core.cli import load as loading
from medusa_core.cli.main import main
from medusa_core.drafters.medusa import with_heads
from medusa_core.hardware import this_machine
from medusa_core.trees.budget import LatencyPoint
from medusa_core.trees.tree import load_tree


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_the_script_knows_commands_and_flags(command, shell):
    pytest.importorskip("shtab")
    code, out, _ = command(["--print-completion", shell])
    assert code == 0
    assert all(word in out for word in ("generate", "max-new-tokens", "convert", "medusa"))


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_takes_the_script(command):
    pytest.importorskip("shtab")
    script = command(["--print-completion", "bash"])[1]
    ask = "complete -p medusa"
    done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("medusa")


def test_without_shtab_the_error_names_it(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    code, _, err = command(["--print-completion", "bash"])
    assert (code, err.count("\n")) == (2, 1)
    assert "pip install shtab" in err


# --- ``tree show`` knows the names auto and default, as ``--tree`` does.


SHIPPED = load_tree(str(ROOT / "assets" / "model" / "heads" / "tree.json"))


@pytest.mark.parametrize("name", ["default", "auto"])
def test_without_measured_times_it_is_the_shipped_tree_and_auto_says_why(command, name):
    code, out, err = command(["tree", "show", name, "--json"])
    assert code == 0
    assert json.loads(out)["choices"] == [list(choice) for choice in SHIPPED.choices]
    note = "note: no step times are measured, so auto is the default tree: unset MEDUSA_MEASURE\n"
    assert err == (note if name == "auto" else "")


def test_with_measured_times_auto_is_the_fastest_one(command, monkeypatch):
    load = loading.load_for_runs
    times = (LatencyPoint(nodes=1, step_ms=1.0), LatencyPoint(nodes=64, step_ms=40.0))
    monkeypatch.setattr(loading, "load_for_runs", lambda *args: with_heads(load(*args), latency=times))
    code, out, err = command(["tree", "show", "auto", "--json"])
    assert code == 0
    assert 1 < json.loads(out)["nodes"] < SHIPPED.size
    assert "the fastest here" in err


# --- ``roofline``: the JSON that others read, a table that fits 80 columns, a sentence for bad settings.


NAMES = ["q", "k", "v", "qk", "pv", "o", "gate", "up", "down", "lm_head"]


def lines(capsys, *words: str) -> list[str]:
    assert main(["roofline", *words]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("model", ["llama-33b", ""])
def test_json_holds_each_operator_and_the_table_fits(capsys, model):
    out = lines(capsys, "--model", model, "--device", "a100", "--tokens", "64", "--json")
    assert max(map(len, out[:-1])) <= 80
    assert "…" not in "".join(out[:-1])
    first_words = [line.split(" ")[0] for line in out[:-1]]
    assert [word for word in first_words if word in NAMES] == NAMES  # a line each
    groups = next(line.split() for line in out if "prefill" in line)
    assert groups == ["64", "tokens", "decode", "prefill"]
    record = json.loads(out[-1])
    assert [each["name"] for each in record["operators"]] == NAMES
    device = record["device"]
    for each in record["operators"]:
        assert each["intensity"] == pytest.approx(each["flops"] / each["bytes"])
        limits = (each["flops"] / device["peak"], each["bytes"] / device["bandwidth"])
        assert each["seconds"] == pytest.approx(max(limits))
    assert set(record["phases"]) == {"prefill", "decode", "parallel decode"}
    total = sum(each["calls"] * each["seconds"] for each in record["operators"])
    assert record["step_seconds"]["parallel decode"] == pytest.approx(total)


def test_a_folder_is_read_by_its_config_alone(capsys, tmp_path):
    config = {
        "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 8,
        "num_key_value_heads": 1, "num_hidden_layers": 2, "vocab_size": 100,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    record = json.loads(lines(capsys, "--model", str(tmp_path), "--device", "cpu", "--json")[-1])
    assert record["model"]["attention"] == "MQA"
    assert record["kv_bytes_per_token"] == 2 * 2 * 8 * 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vocab_size": 10**400}, "vocabulary is 10+"),
        ({"num_experts": "x"}, "chooses among experts"),
        ({"model_type": [], "hidden_size": 0}, "hidden size is 0"),
    ],
)
def test_a_config_that_makes_no_sense_gets_a_sentence(capsys, tmp_path, change, said):
    config = dict.fromkeys(("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size"), 1)
    (tmp_path / "config.json").write_text(json.dumps(config | change), encoding="utf-8")
    assert main(["roofline", "--model", str(tmp_path)]) == 2
    assert re.search(said, capsys.readouterr().err)


def test_a_device_without_a_known_memory_is_not_called_too_small(capsys):
    assert "is not known" in lines(capsys, "--device", "900 GB/s, 120 TFLOP/s")[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--batch", "0"], "batch is 0"),
        (["--tokens", "-4"], "tokens is -4"),
        (["--context", "0"], "context is 0"),
        (["--device", "abacus"], "no device is called 'abacus': use this or one of a100"),
        (["--model", "./nowhere"], "there is no folder ./nowhere"),
    ],
)
def test_bad_settings_get_a_sentence(capsys, words, said):
    assert main(["roofline", *words]) == 2
    assert said in capsys.readouterr().err


def test_this_machine_is_measured_in_the_time_it_is_given():
    machine = this_machine.measure_machine("a processor", seconds=0.1)
    assert machine.threads >= 1
    assert [size for size, _ in machine.bandwidths] == list(this_machine.COPIED)
    assert {"float32", "bfloat16"} <= dict(machine.peaks).keys()
    assert all(1e8 < speed < 1e13 for _, speed in machine.bandwidths)
    assert all(1e8 < speed < 1e15 for _, speed in machine.peaks)
    small, large = machine.device("float32", 1000), machine.device("float32", 1e12)
    assert small.peak == large.peak == dict(machine.peaks)["float32"]
    assert (small.bandwidth, large.bandwidth) == (machine.bandwidths[0][1], machine.bandwidths[-1][1])


def test_the_peak_is_that_of_the_fastest_product(monkeypatch):
    monkeypatch.setattr(this_machine, "fastest", lambda *_: 1.0)  # the largest product is then the fastest
    peaks = dict(this_machine.measure_machine("a processor", seconds=0.1).peaks)
    assert peaks["float32"] == max(2 * 768**3, 2 * 1024 * 512 * 1024) == 2**30


def test_a_dtype_without_products_of_its_own_counts_as_floats():
    peaks = (("float32", 2e11), ("bfloat16", 2e9))
    machine = this_machine.Machine("a processor", 2, ((1 << 20, 1e10),), peaks, 1e9)
    assert machine.device("bfloat16", 1e6).peak == 2e11


# --- ``export replay``: a file for a good trace of either version, one line for anything else.


RECORDED = sorted((ROOT / "assets" / "traces").glob("*.json"))[0]


def export(command, trace, out):
    return command(["export", "replay", trace, out])


def test_a_recorded_trace_becomes_one_file(command, tmp_path):
    code, said, errors = export(command, RECORDED, tmp_path / "run.html")
    assert (code, errors) == (0, "")
    assert "no server, no network" in said
    written = (tmp_path / "run.html").read_text("utf-8")
    assert json.loads(RECORDED.read_text("utf-8"))["prompt"]["text"][:20] in written


def test_a_trace_is_not_written_over(command, tmp_path):
    trace = tmp_path / "run.json"
    trace.write_bytes(RECORDED.read_bytes())
    code, _, errors = export(command, trace, trace)
    assert code != 0
    assert "is the trace itself: give the page another name" in errors
    assert trace.read_bytes() == RECORDED.read_bytes()


def test_the_command_needs_no_torch(tmp_path):
    """It is for those who have a trace, not a model: its imports are read from a fresh process."""
    arguments = ["export", "replay", str(RECORDED), str(tmp_path / "run.html")]
    program = (
        "import sys; from medusa_core.cli.main import main; "
        f"main({arguments!r}); print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize(
    ("text", "words"), [("", "is not a trace ("), ('{"schema_version": 4}', "is a trace of version 4")]
)
def test_a_broken_or_foreign_trace_ends_in_one_line_and_leaves_no_file(command, tmp_path, text, words):
    (tmp_path / "trace.json").write_text(text, "utf-8")
    code, said, errors = export(command, tmp_path / "trace.json", tmp_path / "run.html")
    assert (code, said) == (2, "")
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert words in errors
    assert not (tmp_path / "run.html").exists()


@pytest.mark.parametrize(("out", "words"), [("", "is a folder"), ("nowhere/run.html", "there is no folder")])
def test_a_place_that_cannot_be_written_is_said_to_be_so(command, tmp_path, out, words):
    code, _, errors = export(command, RECORDED, tmp_path / out)
    assert code == 2
    assert words in errors


def test_the_help_names_a_static_space(command):
    code, said, _ = command(["export", "replay", "--help"])
    assert code == 0
    assert "sdk: static" in " ".join(said.split())


def test_a_file_with_the_name_of_a_setting_is_not_taken_for_the_flag(command, tmp_path, monkeypatch):
    (tmp_path / "prompt").write_text("hello", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code, _, err = command(["generate", "hi", "--heads", "prompt"])
    assert code == 2
    assert err.startswith("error: prompt is a file")
