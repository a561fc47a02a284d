"""The whole fit on tiny models: the plan, the stages, resuming, what is refused and how."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import tiny
from training_corpus import SENTENCES

from medusa_core import checkpoints
from medusa_core.cli import main
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.fit import memory
from medusa_core.fit.memory import fitting_pass, head_parameters, model_shape
from medusa_core.fit.plan import (
    FEWEST_ANSWERS,
    FEWEST_STEPS,
    MOST_PASSES,
    Plan,
    Rates,
    first_plan,
    read_plan,
    share_tokens,
    size_plan,
    write_plan,
)
from medusa_core.fit.prompts import PROMPTS, heldout_of, prompt_ids, read_heldout, split_prompts
from medusa_core.fit.report import advice, verdict
from medusa_core.fit.run import DONE, FITTED, prepare, run_fit
from medusa_core.fit.settings import FitConfig
from medusa_core.loading import load_engine
from medusa_core.training.base_model import load_tokenizer
from medusa_core.training.examples import read_examples

RATES = Rates(answers=1000.0, tokens_per_answer=100.0, heads=2000.0, decoding=500.0)


def ignore(_record):
    """A watcher that does not look."""


def tiny_config(base, folder, **changes):
    """A fit that takes seconds, on prompts like the text the base has learned."""
    prompts = folder / "asked.jsonl"
    lines = [json.dumps({"text": sentence}) for sentence in SENTENCES]
    prompts.write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = {
        "model": str(base), "out": str(folder / "fit"), "prompts": str(prompts), "minutes": 0.1, "heads": 3,
        "batch_tokens": 512, "sequence_length": 64, "answer_tokens": 24, "answer_batch": 16,
        "dtype": "float32", "device": "cpu",
    }  # fmt: skip
    return FitConfig(**settings | changes)


def prepared_for(config, steps):
    """A prepared fit of a fixed length: what the minutes allow depends on the load of the machine."""
    prepared = prepare(config, ignore)
    tokens = steps * prepared.plan.batch_tokens
    plan = replace(prepared.plan, answers=160, tokens=tokens, joint_tokens=tokens if config.joint else 0)
    write_plan(Path(config.out), config, plan)
    return replace(prepared, plan=plan)


@pytest.fixture(scope="module")
def fitted(trained_base, tmp_path_factory):
    """A finished fit: its settings, plan, report, and the records it showed."""
    config = tiny_config(trained_base, tmp_path_factory.mktemp("fit"))
    records = []
    prepared = prepared_for(config, steps=120)
    report = run_fit(config, prepared, records.append)
    return config, prepared.plan, report, records


# --- the whole


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
    assert engine.heads.count == 3
    assert not engine.heads.shares_lm_head  # format v1
    assert engine.accuracies == report["accuracies"]
    assert engine.tree("default").size == report["tree"]["nodes"]
    prompt = engine.encode(SENTENCES[0][:8])
    steps = list(engine.stream(prompt, GenerationConfig(max_new_tokens=8)))
    plain = list(engine.stream(prompt, GenerationConfig(max_new_tokens=8, method="none")))
    assert tiny.emitted(steps) == tiny.emitted(plain)
    assert len(steps) < len(plain)


def test_the_folder_explains_itself(fitted):
    config, _, report, _ = fitted
    folder = Path(config.out) / FITTED
    heads = json.loads((folder / "config.json").read_text())
    assert (heads["medusa_num_heads"], heads["base_model_name_or_path"]) == (3, config.model)
    accuracies = json.loads((folder / checkpoints.ACCURACIES_NAME).read_text())
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
    plan = prepare(config, ignore).plan
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


@pytest.fixture
def heard_interrupts():
    """SIGINT as a terminal's program hears it; a suite started in the background inherits a deaf ear."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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


# --- the plan


def test_the_plan_is_printed_and_nothing_begins(trained_base, tmp_path, capsys):
    config = tiny_config(trained_base, tmp_path)
    argv = ["fit", "--plan", "--model", config.model, "--out", config.out, "--prompts", config.prompts,
            "--minutes", "0.1", "--sequence-length", "64", "--answer-tokens", "24"]  # fmt: skip
    assert main(argv) == 0
    shown = capsys.readouterr().out
    for words in ("Time, estimated", "training tokens", "asked for 0.1 min", "Memory in GB", "are free"):
        assert words in shown
    assert sorted(entry.name for entry in (tmp_path / "fit").iterdir()) == [
        "heldout.json", "plan.json", "prompts",
    ]  # fmt: skip


def test_minutes_are_shared_out():
    config = FitConfig(minutes=10)
    plan = size_plan(first_plan(config, 384, 1024), config, RATES)
    assert plan.total_seconds == pytest.approx(600, rel=0.15)
    assert plan.seconds["answers"] == pytest.approx(0.35 * 600, rel=0.02)
    assert plan.seconds["heads"] == pytest.approx(0.5 * 600, rel=0.02)
    assert (plan.batch_tokens, plan.learning_rate, plan.sequence_length) == (2048, 4e-3, 512)


def test_time_for_loading_and_probing_is_taken_off():
    config = FitConfig(minutes=10)
    slow = replace(RATES, load_seconds=30.0, probe_seconds=60.0)
    plan = size_plan(first_plan(config, 384, 1024), config, slow)
    assert plan.total_seconds == pytest.approx(600, rel=0.15)


def test_half_of_the_training_tokens_are_for_the_adapter():
    config = FitConfig(minutes=10, recipe="medusa2")
    plan = size_plan(first_plan(config, 384, 1024), config, replace(RATES, joint=1000.0))
    assert plan.tokens == plan.joint_tokens
    assert plan.seconds["heads and adapter"] == pytest.approx(2 * plan.seconds["heads"])
    assert plan.total_seconds == pytest.approx(600, rel=0.15)


@pytest.mark.parametrize(("answer_rate", "train_rate"), [(1000, 2000), (100, 5000), (5000, 100)])
def test_answers_are_read_at_least_once_and_not_too_often(answer_rate, train_rate):
    answered, trained = share_tokens(100, answer_rate, train_rate)
    assert answered / answer_rate + trained / train_rate == pytest.approx(100)
    assert 1 - 1e-9 <= trained / answered <= MOST_PASSES + 1e-9


def test_a_fit_is_never_smaller_than_useful():
    config = FitConfig(minutes=0.1)
    rates = Rates(answers=1.0, tokens_per_answer=100.0, heads=1.0, decoding=1.0)
    plan = size_plan(first_plan(config, 4096, 2048), config, rates)
    assert plan.answers == FEWEST_ANSWERS
    assert plan.tokens == FEWEST_STEPS * plan.batch_tokens
    assert plan.total_seconds > 60 * config.minutes  # and the estimate says so
    assert plan.learning_rate == 2e-3


def test_short_contexts_have_short_windows():
    plan = first_plan(FitConfig(), 32, 96)
    assert plan.sequence_length == 64
    assert plan.answer_tokens <= 48
    assert plan.prompt_tokens + plan.heldout_tokens <= 96


def test_a_plan_is_kept_for_its_settings_only(tmp_path):
    config = FitConfig(out=str(tmp_path), minutes=5)
    plan = size_plan(first_plan(config, 384, 1024), config, RATES)
    write_plan(tmp_path, config, plan)
    assert read_plan(tmp_path, config, begun=True) == plan
    other = replace(config, minutes=7)
    assert read_plan(tmp_path, other, begun=False) is None
    with pytest.raises(MedusaError, match=r"a fit with minutes 5, now it is 7: choose another --out"):
        read_plan(tmp_path, other, begun=True)


# --- memory


def test_parameters_are_counted_exactly(engine_folder, engine):
    shape = model_shape(engine_folder)
    assert shape.parameters == engine.info.parameters
    assert head_parameters(FitConfig(heads=tiny.HEADS), shape) == engine.info.head_parameters
    assert (shape.width, shape.vocabulary, shape.layers) == (32, tiny.VOCABULARY, 2)
    assert shape.key_value_width == 16


def test_too_little_memory_is_named_with_what_would_help(engine_folder, monkeypatch):
    shape = replace(model_shape(engine_folder), vocabulary=200_000, width=4096)
    config = FitConfig(dtype="float32", device="cpu")
    gib = 2**30
    monkeypatch.setattr(memory, "free_memory", lambda device: 40 * gib)
    with pytest.raises(MedusaError, match=r"needs about \d+\.\d+ GB of memory, 40\.00 GB are free") as caught:
        fitting_pass(config, shape, 512, 2048)
    words = str(caught.value)
    assert "--share-lm-head (" in words
    assert "--heads 2 (" in words
    assert "--base-4bit" not in words  # no GPU here
    joint = replace(config, recipe="medusa2")
    together = replace(config, heads=2, share_lm_head=True)
    monkeypatch.setattr(memory, "free_memory", lambda device: memory.peak(together, shape, 4, 512))
    with pytest.raises(MedusaError, match="use --recipe medusa1 --heads 2 --share-lm-head together"):
        fitting_pass(joint, shape, 512, 2048)
    monkeypatch.setattr(memory, "free_memory", lambda device: 1000)
    with pytest.raises(MedusaError, match="a smaller model or a larger machine"):
        fitting_pass(config, shape, 512, 2048)


def test_a_step_is_made_in_passes_where_memory_is_short(engine_folder, monkeypatch):
    shape = replace(model_shape(engine_folder), vocabulary=200_000)
    config = FitConfig(dtype="float32", device="cpu", answer_batch=1)
    enough, _, _ = fitting_pass(config, shape, 512, 2048)
    assert enough == 2048
    small = memory.peak(config, shape, 4, 1024)
    monkeypatch.setattr(memory, "free_memory", lambda device: small)
    passes, stages, free = fitting_pass(config, shape, 512, 2048)
    assert passes == 1024
    assert max(stage.total for stage in stages) <= free


def test_the_command_names_the_memory_in_one_line(trained_base, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(memory, "free_memory", lambda device: 2**20)
    config = tiny_config(trained_base, tmp_path)
    assert main(["fit", "--model", config.model, "--out", config.out, "--prompts", config.prompts]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "fit" / "plan.json").exists()


# --- what is refused


def refused(argv, capsys):
    assert main(["fit", *map(str, argv)]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    return errors


def test_a_model_without_tokenizer_is_refused(trained_base, tmp_path, capsys):
    bare = tmp_path / "bare"
    shutil.copytree(trained_base, bare, ignore=shutil.ignore_patterns("tokenizer*"))
    assert "tokenizer" in refused(["--model", bare, "--out", tmp_path / "fit"], capsys)


def test_a_tokenizer_without_an_end_is_refused(engine_folder, tmp_path, capsys):
    errors = refused(["--model", engine_folder, "--out", tmp_path / "fit"], capsys)
    assert "end-of-text" in errors


def test_bad_prompts_are_refused(trained_base, tmp_path, capsys):
    common = ["--model", trained_base, "--out", tmp_path / "fit", "--prompts"]
    missing = tmp_path / "missing.jsonl"
    assert str(missing) in refused([*common, missing], capsys)
    few = tmp_path / "few.txt"
    few.write_text("The cat saw a tree.\n")
    assert "holds 1 different prompts, a fit needs 8" in refused([*common, few], capsys)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "The cat"}\n{"tex": 1}\n')
    assert "line 2" in refused([*common, bad], capsys)


def test_a_missing_model_and_odd_settings_are_refused(tmp_path, capsys):
    assert "no folder" in refused(["--model", tmp_path / "nowhere"], capsys)
    assert "minutes is 0.0" in refused(["--minutes", "0"], capsys)
    assert "minutes" in refused(["--minutes", "inf"], capsys)
    assert "4 bits" in refused(["--recipe", "medusa2", "--base-4bit"], capsys)


def test_answers_of_something_else_are_not_taken(trained_base, tmp_path):
    config = tiny_config(trained_base, tmp_path)
    (tmp_path / "fit" / "answers").mkdir(parents=True)
    with pytest.raises(MedusaError, match="answers of something else than a fit: choose another --out"):
        prepare(config, ignore)


# --- prompts


def test_single_prompts_are_beginnings_without_a_chat_template(trained_base, tmp_path):
    tokenizer = load_tokenizer(trained_base)
    tokenizer.chat_template = None
    file = tmp_path / "ask.jsonl"
    lines = [json.dumps({"prompt": sentence[:18]}) for sentence in SENTENCES]
    file.write_text("\n".join([*lines, *lines]) + "\n")
    unlike = len({tuple(tokenizer(sentence[:18])["input_ids"]) for sentence in SENTENCES})
    heldout = split_prompts(file, tokenizer, tmp_path, 16, seed=0)
    written = (tmp_path / PROMPTS / "ask.jsonl").read_text().splitlines()
    assert len(heldout.calibration) + len(heldout.measuring) + len(written) == unlike
    assert all(list(json.loads(line)) == ["text"] for line in written)


def test_dialogues_need_a_chat_template_and_keep_their_turns(trained_base, tmp_path):
    tokenizer = load_tokenizer(trained_base)
    file = tmp_path / "chats.jsonl"
    lines = [json.dumps({"turns": [sentence, "And then?"]}) for sentence in SENTENCES]
    file.write_text("\n".join(lines) + "\n")
    heldout = split_prompts(file, tokenizer, tmp_path, 16, seed=0)
    asked = tokenizer.decode(heldout.measuring[0])
    assert any(sentence in asked for sentence in SENTENCES)  # the whole first turn, in the template
    assert "And then?" not in asked
    written = (tmp_path / PROMPTS / "chats.jsonl").read_text().splitlines()
    assert all(json.loads(line)["turns"][1] == "And then?" for line in written)
    tokenizer.chat_template = None
    with pytest.raises(MedusaError, match="no chat template: give texts"):
        split_prompts(file, tokenizer, tmp_path, 16, seed=0)


def test_without_prompts_the_model_invents_beginnings_nobody_trained_on(model, engine, tmp_path):
    varied = replace(engine, tokenizer=tiny.tiny_tokenizer(end_token=5))
    file = tmp_path / "invented.jsonl"
    file.write_text(json.dumps({"text": "hallo"}) + "\n")
    free = heldout_of(varied, tmp_path, 4, 12, 0, embedded=False)
    prompts = [tuple(ids) for ids in free.calibration + free.measuring]
    assert len(set(prompts)) == 8
    # A text that begins as one of them did is taken out, and another is drawn.
    file.write_text(json.dumps({"text": varied.decode_text(prompts[0])}) + "\n")
    kept = heldout_of(varied, tmp_path, 4, 12, 0, embedded=False)
    assert prompts[0] not in [tuple(ids) for ids in kept.calibration + kept.measuring]


# --- variants


def test_medusa2_and_its_adapter(trained_base, tmp_path):
    config = tiny_config(trained_base, tmp_path, recipe="medusa2")
    report = run_fit(config, prepared_for(config, steps=60), ignore)
    folder = tmp_path / "fit" / FITTED
    assert checkpoints.has_adapter(folder)
    loss = report["training"]["base_loss"]
    assert loss["after"] == pytest.approx(loss["before"], rel=0.1)
    assert "adapter" in (folder / "README.md").read_text()
    assert report["measured"]["methods"]["medusa"]["tokens_per_step"] > 1.2


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


def test_a_plan_survives_its_file(tmp_path):
    plan = Plan(64, 512, 512, 4e-3, 24, 32, 5120, rates=RATES, seconds={"answers": 1.5})
    write_plan(tmp_path, FitConfig(out=str(tmp_path)), plan)
    assert read_plan(tmp_path, FitConfig(out=str(tmp_path)), begun=True) == plan
