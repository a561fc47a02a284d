"""Run folders that were damaged: training ends in one line that names file and way out, or goes on."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from bad_input import Trap, cut
from training_corpus import losses_of
from training_runs import settings_for

from medusa_core.errors import MedusaError
from medusa_core.training.checkpoint import NEWEST, PREVIOUS
from medusa_core.training.config import Medusa1Config
from medusa_core.training.recipes import train


@pytest.fixture(scope="module")
def half_run(trained_base, tmp_path_factory):
    """A run of 30 steps that was stopped after step 25: checkpoints at 25 and 20."""
    folder = tmp_path_factory.mktemp("half") / "run"
    records = train(Medusa1Config(**settings_for(trained_base, folder)))
    while next(records).step < 25:
        pass
    records.close()
    return folder


@pytest.fixture
def run(half_run, trained_base, tmp_path):
    """A copy of that run to damage, and its settings."""
    folder = tmp_path / "run"
    shutil.copytree(half_run, folder)
    # The folder is no part of what must stay the same.
    return folder, Medusa1Config(**settings_for(trained_base, folder))


def alone(folder):
    """Without the checkpoint before the newest."""
    (folder / PREVIOUS).unlink()


def changed(folder, change):
    """The newest checkpoint with other contents."""
    state = torch.load(folder / NEWEST, weights_only=True)
    state = change(state) or state
    torch.save(state, folder / NEWEST)


def flip_a_bit(file):
    """In the largest record, which torch reads without looking at its checksum."""
    with zipfile.ZipFile(file) as records:
        largest = max(records.infolist(), key=lambda record: record.file_size)
    content = bytearray(file.read_bytes())
    content[largest.header_offset + largest.file_size // 2] ^= 1
    file.write_bytes(bytes(content))
    torch.load(file, weights_only=True)


def with_code(folder):
    torch.save({"step": Trap(folder / "executed"), "module": {}, "optimizers": []}, folder / NEWEST)


def set_first(key, value):
    """Set one weight of the first optimizer's first state."""

    def change(state):
        state["optimizers"][0]["state"][0][key] = value

    return lambda folder: changed(folder, change)


def drop(key):
    return lambda folder: changed(folder, lambda state: state.pop(key) and None)


def first_weight(change):
    def apply(state):
        name = min(state["module"])
        state["module"][name] = change(state["module"][name])

    return lambda folder: changed(folder, apply)


def other_optimizer(state):
    own = state["optimizers"][0]["state"]
    state["optimizers"][0]["state"] = {n: {"momentum_buffer": s["exp_avg"]} for n, s in own.items()}


CHECKPOINTS = {
    "cut": (lambda folder: cut(folder / NEWEST, 0.6), "is cut off, damaged or not a checkpoint"),
    "a bit flipped": (lambda folder: flip_a_bit(folder / NEWEST), "is damaged, the checksum of"),
    "foreign": (lambda folder: torch.save({"weight": torch.ones(3)}, folder / NEWEST), "is not the check"),
    "with code": (with_code, r"holds code \(\S+\), which was not run"),
    "a folder": (
        lambda folder: ((folder / NEWEST).unlink(), (folder / NEWEST).mkdir()), "cannot be read .*directory"
    ),
    "other shapes": (first_weight(lambda t: t[..., :1].clone()), "belongs to another model: .* is .*, not"),
    "other names": (
        lambda folder: changed(folder, lambda state: state["module"].update(odd=torch.ones(1))),
        r"belongs to another model or recipe \(odd\)",
    ),
    "NaN": (first_weight(lambda t: t * torch.nan), "has no finite numbers in"),
    "no step": (drop("step"), "is not the checkpoint of a run"),
    "a step of another type": (
        lambda f: changed(f, lambda s: s.update(step="25")), r"is not the checkpoint of a run \(step Input"
    ),
    "another course": (
        lambda f: changed(f, lambda s: s.update(course={"first": "x"})), r"\(course\.first Input should be a"
    ),
    "one optimizer too many": (
        lambda f: changed(f, lambda s: s["optimizers"].append(s["optimizers"][0])), "has 2 optimizers"
    ),
    "an optimizer without state": (
        lambda f: changed(f, lambda s: s["optimizers"][0].update(state={})), "AdamW state of 0 weights, not"
    ),
    "another optimizer": (lambda f: changed(f, other_optimizer), "state of another optimizer than AdamW"),
    "NaN in the optimizer": (
        set_first("step", torch.tensor(torch.nan)), r"state \(step\) that does not fit"
    ),
    "shapes of the optimizer": (
        set_first("exp_avg", torch.ones(2, 2)), r"AdamW state \(exp_avg\) that does not fit the weights"
    ),
    "no tensor in the optimizer": (set_first("exp_avg", 3.0), r"state \(exp_avg\) that is not a tensor"),
}  # fmt: skip


def refused(config, cause, fix="choose another --out"):
    with pytest.raises(MedusaError) as caught:
        list(train(config))
    message = str(caught.value)
    assert "\n" not in message
    assert re.search(cause, message), message
    assert fix in message
    return message


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_bad_checkpoint_without_another_ends_in_one_line(run, name):
    folder, config = run
    damage, cause = CHECKPOINTS[name]
    damage(folder)
    alone(folder)
    message = refused(config, cause, "delete the folder to start anew, or choose another --out")
    assert str(folder / NEWEST) in message
    assert not (folder / "executed").exists()


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_bad_checkpoint_falls_back_to_the_one_before(run, caplog, name):
    folder, config = run
    CHECKPOINTS[name][0](folder)
    records = train(config)
    assert next(records).step == 21
    records.close()
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("medusa_core")]
    assert line.startswith(f"warning: {folder / NEWEST} ")
    assert "the run goes on from the checkpoint before it, at step 20" in line
    assert not (folder / "executed").exists()


def test_a_run_that_fell_back_ends_as_one_that_never_broke_off(run, trained_base, tmp_path):
    folder, config = run
    cut(folder / NEWEST, 0.5)
    with open(folder / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": 25, "loss": 9.0}\n{"step": 26, "lo')  # after step 20, where it goes on
    *_, last = train(config)
    assert last.step == 30
    straight = Medusa1Config(**settings_for(trained_base, tmp_path / "straight"))
    list(train(straight))
    assert list(losses_of(folder)) == [10, 20, 30]
    assert losses_of(folder) == pytest.approx(losses_of(tmp_path / "straight"), abs=1e-3)
    # The bad one has not become the one before: a second accident is survived too.
    cut(folder / NEWEST, 0.5)
    records = train(config)
    assert next(records).step == 21
    records.close()


def test_a_kill_between_the_two_renames_is_survived(run):
    folder, config = run
    (folder / NEWEST).rename(folder / "checkpoint.partial")
    records = train(config)
    assert next(records).step == 21
    records.close()


def test_two_bad_checkpoints_end_in_one_line(run):
    folder, config = run
    for name in (NEWEST, PREVIOUS):
        cut(folder / name, 0.5)
    refused(config, f"{PREVIOUS} cannot be used either")


def test_the_command_ends_with_exit_code_2(run, command):
    folder, config = run
    alone(folder)
    cut(folder / NEWEST, 0.5)
    settings = settings_for(Path(config.model), folder).items()
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings]
    code, out, err = command(["train", "medusa1", *flags])
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith(f"error: {folder / NEWEST} is cut off")


# --- the plain files


FILES = {
    "a cut config": ("config.json", b'{"tokens": 1', r"config\.json is not JSON", "put back"),
    "a config that is a list": ("config.json", b"[1, 2]", r"config\.json is not a JSON object", "put back"),
    "a config of brackets": ("config.json", b"[" * 100_000, "nested too deeply", "put back"),
    "another config": ("config.json", b'{"a": 1}', "holds no settings of a run", "put back its own"),
    "spliced metrics": (
        "metrics.jsonl", b'{"step": 10, "lo{"step": 20}\n', r"line 1 of .*metrics\.jsonl is damaged",
        "take the line out",
    ),
    "metrics of bytes": (
        "metrics.jsonl", b'{"step": 10}\n\xff\xfe\n', r"line 2 of .* is damaged \(it is no UTF-8",
        "take the line out",
    ),
    "metrics without a step": (
        "metrics.jsonl", b'{"loss": 1.0}\n', "line 1 of .* has no number under 'step'", "take the line out"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_beside_the_checkpoint_end_in_one_line(run, name):
    folder, config = run
    file, content, cause, fix = FILES[name]
    (folder / file).write_bytes(content)
    refused(config, cause, fix)
    assert (folder / file).read_bytes() == content


def test_a_missing_config_ends_in_one_line(run):
    folder, config = run
    (folder / "config.json").unlink()
    refused(config, r"cannot read .*config\.json \(No such file", "put back")


@pytest.mark.parametrize("content", [b"{", b'{"step": "x", "tokens": 1}'])
def test_a_damaged_result_of_a_finished_run_is_measured_anew(run, content):
    folder, config = run
    list(train(config))
    whole = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_bytes(content)
    list(train(config))
    found = json.loads((folder / "result.json").read_text())
    assert {name: found[name] for name in found} == pytest.approx({name: whole[name] for name in found})
    assert "heldout/chat/base" in found


def test_a_run_does_not_replace_the_config_of_a_model(engine_folder, trained_base, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(engine_folder, folder)
    before = (folder / "config.json").read_bytes()
    refused(Medusa1Config(**settings_for(trained_base, folder)), "holds a model, whose config")
    assert (folder / "config.json").read_bytes() == before
