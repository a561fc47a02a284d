"""The plan of a fit: how time and tokens are shared out, what memory allows, and its file."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny
from fits import RATES, tiny_config

from medusa_core.cli.main import main
from medusa_core.errors import MedusaError
from medusa_core.loading.model_size import model_size
from medusa_core.training.fit import memory
from medusa_core.training.fit.memory import fitting_pass, head_parameters
from medusa_core.training.fit.plan import (
    FEWEST_ANSWERS,
    FEWEST_STEPS,
    MOST_PASSES,
    Rates,
    first_plan,
    read_plan,
    share_tokens,
    size_plan,
    write_plan,
)
from medusa_core.training.fit.settings import FitConfig

# --- time


def test_the_plan_is_printed_and_nothing_begins(trained_base, tmp_path, capsys):
    config = tiny_config(trained_base, tmp_path)
    argv = ["fit", "--plan", "--model", config.model, "--out", config.out, "--prompts", config.prompts,
            "--minutes", "0.1", "--sequence-length", "64", "--answer-tokens", "24"]  # fmt: skip
    assert main(argv) == 0
    shown = capsys.readouterr().out
    for words in ("Time, estimated", "training tokens", "asked for 0.1 min", "Memory; ", "are free"):
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
    shape = model_size(engine_folder)
    assert shape.parameters == engine.info.parameters
    assert head_parameters(FitConfig(heads=tiny.HEADS), shape) == engine.info.draft_parameters
    assert (shape.width, shape.vocabulary, shape.layers) == (32, tiny.VOCABULARY, 2)
    assert shape.key_value_width == 16


def test_too_little_memory_is_named_with_what_would_help(engine_folder, monkeypatch):
    shape = replace(model_size(engine_folder), vocabulary=200_000, width=4096)
    config = FitConfig(dtype="float32", device="cpu")
    gib = 2**30
    monkeypatch.setattr(memory, "free_memory", lambda device: 40 * gib)
    with pytest.raises(MedusaError, match=r"needs about \d+\.\d+ GB of memory, 42\.9 GB are free") as caught:
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
    shape = replace(model_size(engine_folder), vocabulary=200_000)
    config = FitConfig(dtype="float32", device="cpu", answer_batch=1)
    monkeypatch.setattr(memory, "free_memory", lambda device: 2**40)
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
