"""What a fit and the answers of self-distillation left behind, damaged: one line that says what to do."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from types import SimpleNamespace

import pytest
from fits import RATES

from medusa_core.errors import MedusaError
from medusa_core.training.answers import PROGRESS
from medusa_core.training.config import Medusa1Config
from medusa_core.training.fit.plan import PLAN, first_plan, read_plan, size_plan, write_plan
from medusa_core.training.fit.prompts import HELDOUT, HeldOut, read_heldout, write_heldout
from medusa_core.training.fit.report import _part
from medusa_core.training.fit.run import DONE, _once, _training, run_fit
from medusa_core.training.fit.settings import FitConfig
from medusa_core.training.run_folder import write_record

BROKEN = {"cut": b'{"a": 1', "a list": b"[1]", "brackets": b"[" * 100_000}


def refused(call, *words):
    with pytest.raises(MedusaError) as caught:
        call()
    for part in words:
        assert re.search(part, str(caught.value)), caught.value


def wrong_plans(record):
    """Plans whose JSON is fine and whose numbers are none."""
    plan = record["plan"]
    for changes in (
        {"tokens": "many"}, {"tokens": True}, {"answers": -1}, {"odd": 1}, {"rates": []},
        {"rates": {"odd": 1}}, {"seconds": 3}, {"seconds": {"heads": None}}, {"learning_rate": "fast"},
        {"learning_rate": float("nan")},
    ):  # fmt: skip
        yield record | {"plan": plan | changes}
    yield record | {"plan": None}
    yield record | {"settings": 5}
    yield {}


def test_a_damaged_plan_ends_in_one_line(tmp_path):
    config = FitConfig(out=str(tmp_path))
    plan = size_plan(first_plan(config, 64, 128), config, RATES)
    write_plan(tmp_path, config, plan)
    assert asdict(read_plan(tmp_path, config, begun=True)) == asdict(plan)
    whole = json.loads((tmp_path / PLAN).read_text())
    contents = [*BROKEN.values(), *(json.dumps(record).encode() for record in wrong_plans(whole))]
    for content in contents:
        (tmp_path / PLAN).write_bytes(content)
        refused(lambda: read_plan(tmp_path, config, begun=True), re.escape(PLAN), "choose another --out")


def test_damaged_heldout_prompts_end_in_one_line(tmp_path):
    file = tmp_path / HELDOUT
    prompts = HeldOut([[1, 2]], [[3]])
    write_heldout(file, prompts)
    assert read_heldout(file) == prompts
    lists = [[], [["a"]], [[True]], [[-1]], [[]], "ab", None]
    wrong = [{"calibration": found, "measuring": [[1]]} for found in lists]
    for content in [*BROKEN.values(), *(json.dumps(record).encode() for record in wrong)]:
        file.write_bytes(content)
        refused(lambda: read_heldout(file), re.escape(HELDOUT), "choose another --out")


@pytest.mark.parametrize("name", BROKEN)
def test_damaged_notes_of_stages_end_in_one_line(tmp_path, name):
    (tmp_path / DONE).write_bytes(BROKEN[name])
    refused(
        lambda: _once(tmp_path / DONE, "heads", lambda: None), re.escape(DONE), "delete it to do all stages"
    )


@pytest.mark.parametrize("name", BROKEN)
def test_a_damaged_result_names_the_stage_to_do_again(tmp_path, name):
    run = tmp_path / "train-heads"
    run.mkdir()
    config, recipes = FitConfig(out=str(tmp_path)), {"heads": Medusa1Config(out=str(run))}
    refused(lambda: _training(config, recipes), "result.json is missing or damaged")
    (run / "result.json").write_bytes(BROKEN[name])
    refused(lambda: _training(config, recipes), "take 'heads' out of .*done.json to do that stage again")


def test_a_result_that_was_deleted_names_the_stage_to_do_again(tmp_path):
    config = FitConfig(out=str(tmp_path))
    plan = size_plan(first_plan(config, 64, 128), config, RATES)
    write_record(tmp_path / DONE, {"answers": 1.0, "heads": 1.0, "calibration": 1.0})
    prepared = SimpleNamespace(plan=plan)
    refused(
        lambda: run_fit(config, prepared, print), "fitted is missing: take 'calibration' out of .*done.json"
    )


def test_damaged_accuracies_of_the_result_end_in_one_line(tmp_path):
    (tmp_path / "accuracies.json").write_text('{"accuracies": [[0.5]]}')
    refused(lambda: _part(tmp_path / "accuracies.json", ("accuracies", "positions")), "has no 'positions'")


# --- answers


@pytest.fixture(scope="module")
def answers(shop_engine, tmp_path_factory):
    """The command that writes a few answers, and its folder, in which they are written."""
    from medusa_core.cli.main import main

    out = tmp_path_factory.mktemp("answers") / "run"
    argv = [
        "train", "self-distill", "--model", str(shop_engine), "--out", str(out), "--answers", "4",
        "--answer-batch", "2", "--answer-tokens", "8", "--train", "nothing",
        "--prompts", str(shop_engine / "text.jsonl"),
    ]  # fmt: skip
    assert main(argv) == 0
    return argv, out / "answers"


NOTES = BROKEN | {"text": b'{"batches": "2"}', "nothing": b"{}", "less than nothing": b'{"batches": -1}'}


@pytest.mark.parametrize("name", NOTES)
def test_a_damaged_note_of_the_answers_ends_in_one_line(answers, command, name):
    argv, folder = answers
    whole = (folder / PROGRESS).read_bytes()
    (folder / PROGRESS).write_bytes(NOTES[name])
    code, out, err = command(argv)
    (folder / PROGRESS).write_bytes(whole)
    assert (code, out) == (2, "")
    assert f"delete {folder}, and the answers are written anew" in err.splitlines()[-1]


LINES = {
    "spliced": b'{"batch": 0, "te{"batch": 0, "text": "ab"}\n',
    "bytes": b'{"batch": 0, "text": "\xff"}\n',
    "without its batch": b'{"text": "ab"}\n',
    "a number": b"5\n",
}


@pytest.mark.parametrize("name", LINES)
def test_damaged_answers_end_in_one_line(answers, command, name):
    argv, folder = answers
    (file,) = folder.glob("*.jsonl")
    whole = file.read_bytes()
    file.write_bytes(LINES[name] + whole)
    code, out, err = command(argv)
    file.write_bytes(whole)
    assert (code, out) == (2, "")
    assert re.search(
        f"error: line 1 of {file} .*: take the line out, or delete {folder}", err.splitlines()[-1]
    )


def test_a_half_line_at_the_end_is_dropped(answers, command):
    argv, folder = answers
    (file,) = folder.glob("*.jsonl")
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"batch": 2, "te')
    assert command(argv)[0] == 0
    assert file.read_bytes() == whole
