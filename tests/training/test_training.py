"""The training loop by way of pretraining: schedule, tokenizer, resuming, stopping, divergence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from training_corpus import SENTENCES, losses_of

from medusa_core.errors import MedusaError
from medusa_core.training.loop import Schedule
from tools.make_model.pretrain import pretrain
from tools.make_model.settings import PretrainConfig
from tools.make_model.tokenizer import build_tokenizer


def pretrain_config(corpus, **changes):
    config = PretrainConfig(
        out=str(corpus / "base"), recipe=str(corpus / "recipe.json"), data_root=str(corpus),
        tokens=40 * 256, vocab_size=300, hidden_size=32, intermediate_size=64, layers=1, attention_heads=2,
        kv_heads=1, context=64, sequence_length=32, batch_tokens=256, max_tokens=100_000, warmup_steps=4,
        checkpoint_every=10, evaluate_every=1000,
    )  # fmt: skip
    return replace(config, **changes)


@pytest.mark.parametrize("shape", ["linear", "cosine"])
@pytest.mark.parametrize(("steps", "warmup"), [(80, 40), (1000, 40), (2, 1)])
def test_the_rate_falls_from_its_peak_where_the_whole_run_decays(shape, steps, warmup):
    schedule = Schedule(steps, warmup, 1.0, shape)
    factors = [schedule.factor(step) for step in range(steps)]
    assert factors[warmup - 1] == factors[warmup] == 1
    assert factors[warmup:] == sorted(factors[warmup:], reverse=True)
    middle = (steps + warmup) // 2
    assert steps == 2 or factors[middle] == pytest.approx(0.5)


def test_every_text_survives_the_tokenizer():
    tokenizer = build_tokenizer(SENTENCES, 300)
    for text in ("The cat", "naïve ☃ 数\n\n  x", "12 + 34 = 46", "\x00\x7f"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_pretraining_learns(corpus):
    *_, last = pretrain(pretrain_config(corpus))
    losses = losses_of(corpus / "base")
    assert losses[40] < losses[10] - 0.5
    assert last.folder == corpus / "base" / "model"
    assert (last.folder / "tokenizer.json").is_file()


def test_a_killed_run_goes_on_with_the_same_losses(corpus):
    *_, _ = pretrain(pretrain_config(corpus, out=str(corpus / "straight")))
    broken = pretrain_config(corpus, out=str(corpus / "broken"))
    records = pretrain(broken)
    while next(records).step < 25:
        pass
    with pytest.raises(KeyboardInterrupt):
        records.throw(KeyboardInterrupt)  # no time to save: it goes on from step 20
    again = list(pretrain(broken))
    assert again[0].step == 21
    resumed, whole = losses_of(corpus / "broken"), losses_of(corpus / "straight")
    assert list(resumed) == list(whole) == [10, 20, 30, 40]
    assert resumed == pytest.approx(whole, abs=1e-3)


def test_a_stopped_run_is_saved_where_it_stopped(corpus):
    config = pretrain_config(corpus)
    records = pretrain(config)
    while next(records).step < 13:
        pass
    records.close()
    assert next(pretrain(config)).step == 14


def test_a_run_does_not_go_on_with_other_settings(corpus):
    records = pretrain(pretrain_config(corpus))
    next(records)
    records.close()
    with pytest.raises(MedusaError, match=r"a run with layers 1, now it is 2: choose another --out"):
        next(pretrain(pretrain_config(corpus, layers=2)))


def test_a_run_can_be_made_longer(corpus):
    *_, first = pretrain(pretrain_config(corpus))
    *_, second = pretrain(pretrain_config(corpus, tokens=60 * 256))
    assert (first.step, second.step) == (40, 60)


@pytest.mark.parametrize("rate", [1e30, 30.0])
def test_divergence_stops_with_its_cause(corpus, rate):
    with pytest.raises(MedusaError, match=r"(loss is nan|the run has diverged).*lower the learning rate"):
        list(pretrain(pretrain_config(corpus, learning_rate=rate, matrix_learning_rate=rate)))
