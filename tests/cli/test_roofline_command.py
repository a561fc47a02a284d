"""``roofline``: the JSON that others read, a table that fits 80 columns, a sentence for bad settings."""

from __future__ import annotations

import json

import pytest

from medusa_core.cli.main import main
from medusa_core.hardware import this_machine

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


def test_a_dtype_without_products_of_its_own_counts_as_floats():
    peaks = (("float32", 2e11), ("bfloat16", 2e9))
    machine = this_machine.Machine("a processor", 2, ((1 << 20, 1e10),), peaks, 1e9, 0.1)
    assert machine.device("bfloat16", 1e6).peak == 2e11
