"""The whole fit on tiny models: its stages, its result, stopping and going on, what it says."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest
import tiny
from fits import ignore, prepared_for, tiny_config
from training_corpus import SENTENCES

from medusa_core.checkpoints.locate import has_adapter
from medusa_core.checkpoints.names import ACCURACIES_NAME
from medusa_core.cli.main import main
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.loading.load import load_engine
from medusa_core.training.base_model import load_tokenizer
from medusa_core.training.examples import read_examples
from medusa_core.training.fit import probe
from medusa_core.training.fit.prompts import PROMPTS, prompt_ids, read_heldout
from medusa_core.training.fit.report import advice, verdict
from medusa_core.training.fit.run import DONE, FITTED, prepare, run_fit
from medusa_core.training.fit.settings import FitConfig


@pytest.fixture(scope="module")
def fitted(trained_base, tmp_path_factory):
    """A finished fit: its settings, plan, report, and the records it showed."""
    config = tiny_config(trained_base, tmp_path_factory.mktemp("fit"))
    records = []
    prepared = prepared_for(config, steps=120)
    report = run_fit(config, prepared, records.append)
    return config, prepared.plan, report, records


# --- the whole


def test_the_probe_waits_for_whole_batches_of_answers(trained_base, tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "_LONG_ENOUGH", 0.0)  # seconds: the first count would do
    assert prepare(tiny_config(trained_base, tmp_path), ignore).plan.answers > 0


def test_a_fit_raises_tokens_per_step(fitted):
    _, plan, report, records = fitted
    speeds = report["measured"]["methods"]
    fresh = report["measured"]["fresh_tokens_per_step"]
    assert fresh < 1.5  # untrained heads guess what the base has just said
    assert speeds["medusa"]["tokens_per_step"] > fresh + 0.5
    assert speeds["none"]["tokens_per_step"] == 1
    assert list(dict.fromkeys(r.stage for r in records)) == [
        "answers", "heads", "calibration", "latency", "measuring",
    ]  # fmt: skip
    assert report["training"]["tokens"] == plan.tokens
    assert report["gained"] == (speeds["medusa"]["speedup"] > 1)


def test_medusa_writes_what_plain_decoding_writes(fitted):
    _, _, report, _ = fitted
    same, _, count = report["measured"]["float32"]["identical_outputs"].split()
    assert same == count


def test_the_result_is_loaded_like_any_heads(fitted):
    config, _, report, _ = fitted
    folder = Path(config.out) / FITTED
    engine = load_engine(LoadConfig(model=config.model, heads=str(folder), dtype="float32", device="cpu"))
    assert medusa_draft(engine).heads.count == 3
    assert not medusa_draft(engine).heads.shares_lm_head  # format v1
    assert medusa_draft(engine).accuracies == report["accuracies"]
    assert medusa_draft(engine).tree("default").size == report["tree"]["nodes"]
    prompt = engine.encode(SENTENCES[0][:8])
    steps = list(engine.stream(prompt, GenerationConfig.of(max_new_tokens=8)))
    plain = list(engine.stream(prompt, GenerationConfig.of(max_new_tokens=8, method="none")))
    assert tiny.emitted(steps) == tiny.emitted(plain)
    assert len(steps) < len(plain)


def test_the_folder_explains_itself(fitted):
    config, _, report, _ = fitted
    folder = Path(config.out) / FITTED
    heads = json.loads((folder / "config.json").read_text())
    assert (heads["medusa_num_heads"], heads["base_model_name_or_path"]) == (3, config.model)
    accuracies = json.loads((folder / ACCURACIES_NAME).read_text())
    assert [point["nodes"] for point in accuracies["latency"]][:2] == [1, 2]
    assert json.loads((folder / "report.json").read_text()) == report
    card = (folder / "README.md").read_text()
    assert report["verdict"] in card
    assert all(command in card for command in report["commands"])
    assert f"--heads {folder}" in report["commands"][0]
    assert f"{report['accuracies'][2][0]:.3f}" in card


def test_no_prompt_serves_twice(fitted, trained_base):
    config, plan, _, _ = fitted
    tokenizer = load_tokenizer(trained_base)
    heldout = read_heldout(Path(config.out) / "heldout.json")
    trained = {
        tuple(prompt_ids(example, tokenizer, plan.prompt_tokens))
        for example in read_examples(Path(config.out) / PROMPTS)
    }
    sets = [set(map(tuple, prompts)) for prompts in (heldout.calibration, heldout.measuring)]
    assert all(sets)
    assert trained
    assert not sets[0] & sets[1]
    assert not trained & (sets[0] | sets[1])
    assert len(trained) + len(sets[0]) + len(sets[1]) == len(SENTENCES)


def test_a_finished_fit_does_nothing_again(fitted):
    config, _, report, _ = fitted
    seen = []
    assert run_fit(config, prepare(config, seen.append), seen.append) == report
    assert seen == []


# --- stopping and going on


class StoppedError(Exception):
    """Raised by a watcher."""


def stop_at(stage, step):
    """A watcher that stops a fit when a stage is so far, and keeps what it saw."""
    seen = []

    def watch(record):
        seen.append(record)
        if record.stage == stage and record.step >= step:
            raise StoppedError

    watch.seen = seen
    return watch


def test_a_stopped_fit_goes_on_where_it_was_with_the_same_plan(trained_base, tmp_path):
    config = tiny_config(trained_base, tmp_path)
    plan = prepared_for(config, steps=20).plan
    for stage, step in (("answers", 1), ("heads", 7), ("heads", 9), ("measuring", 2)):
        prepared = prepare(config, ignore)
        watch = stop_at(stage, step)
        with pytest.raises(StoppedError):
            run_fit(config, prepared, watch)
        assert prepared.plan == plan
        if step == 9:
            assert watch.seen[0].step == 8  # the checkpoint of the stop before
    done = json.loads((tmp_path / "fit" / DONE).read_text())
    assert list(done) == ["answers", "heads", "calibration"]
    last = stop_at("never", 0)
    assert prepare(config, ignore).resumed
    assert run_fit(config, prepare(config, ignore), last)["training"]["tokens"] == plan.tokens
    assert {record.stage for record in last.seen} == {"measuring"}


@pytest.mark.usefixtures("heard_interrupts")
def test_ctrl_c_stops_cleanly_and_the_command_goes_on(trained_base, tmp_path, capsys):
    config = tiny_config(trained_base, tmp_path, minutes=1.0)
    flags = [part for name, value in asdict(config).items() if not isinstance(value, bool)
             for part in (f"--{name.replace('_', '-')}", str(value))]  # fmt: skip
    began = tmp_path / "fit" / "answers" / ".progress"

    def press():
        deadline = time.monotonic() + 60
        while not began.is_file() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    assert main(["fit", *flags]) == 130
    errors = capsys.readouterr().err
    assert "stopping after this step" in errors
    assert "the same command goes on from there" in errors
    assert "Traceback" not in errors
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert prepare(config, ignore).resumed


# --- variants


@pytest.mark.slow
def test_medusa2_and_its_adapter(trained_base, tmp_path):
    config = tiny_config(trained_base, tmp_path, recipe="medusa2")
    report = run_fit(config, prepared_for(config, steps=60), ignore)
    folder = tmp_path / "fit" / FITTED
    assert has_adapter(folder)
    loss = report["training"]["base_loss"]
    assert loss["after"] == pytest.approx(loss["before"], rel=0.1)
    assert "adapter" in (folder / "README.md").read_text()
    assert report["measured"]["methods"]["medusa"]["tokens_per_step"] > 1.2


@pytest.mark.slow
def test_heads_that_share_the_lm_head(trained_base, tmp_path):
    config = tiny_config(trained_base, tmp_path, share_lm_head=True)
    report = run_fit(config, prepared_for(config, steps=120), ignore)
    folder = tmp_path / "fit" / FITTED
    assert json.loads((folder / "config.json").read_text())["version"] == "2"
    speeds = report["measured"]
    assert speeds["methods"]["medusa"]["tokens_per_step"] > speeds["fresh_tokens_per_step"]


# --- words


def measured(tokens_per_step, overhead, device="cpu", dtype="float32"):
    speedup = tokens_per_step / overhead
    medusa = {"tokens_per_step": tokens_per_step, "overhead": overhead, "speedup": speedup,
              "speedup_range": [speedup, speedup]}  # fmt: skip
    return {
        "model": {"device": device, "dtype": dtype},
        "measured": {"methods": {"medusa": medusa}, "fresh_tokens_per_step": 1.02},
    }


def test_a_loss_is_called_a_loss():
    config = FitConfig(minutes=5)
    assert verdict(measured(2.0, 1.25)).startswith("1.60 times as fast")
    assert not list(advice(config, measured(2.0, 1.25)))
    assert verdict(measured(1.1, 1.5)).startswith("Nothing was gained")
    words = " ".join(advice(config, measured(1.1, 1.5)))
    assert all(word in words for word in ("--minutes 20", "--prompts", "medusa2", "float32"))
    assert "larger model or a GPU" in " ".join(advice(config, measured(2.0, 2.5, dtype="bfloat16")))
