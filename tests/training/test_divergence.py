"""Learning rates by the formula, and divergence: healthy runs go on, those that are lost are stopped."""

from __future__ import annotations

import math
from math import cos, pi

import pytest
import torch
from test_training import pretrain_config
from torch.optim.optimizer import register_optimizer_step_pre_hook
from training_runs import settings_for

from medusa_core.errors import MedusaError
from medusa_core.training.config import Medusa1Config
from medusa_core.training.divergence import DivergenceLimit, LossTracker
from medusa_core.training.loop import Schedule
from medusa_core.training.recipes import train
from tools.make_model.pretrain import pretrain

CHANCE = math.log(4096)  # 8.3
WATCH = DivergenceLimit("loss/1", CHANCE)

# Measured on the embedded model with fresh heads and 1024 tokens a step, at these learning rates.
HEALTHY = {
    "0.002": [9.8, 9.8, 9.7, 8.8, 8.1, 7.7, 7.0, 6.0, 5.1, 5.2, 5.0, 4.0, 3.2, 2.9, 2.2, 2.2, 2.4],
    "0.05, rough": [9.8, 6.9, 6.3, 5.1, 7.0, 7.7, 9.6, 7.6, 4.4, 7.9, 6.0, 5.1, 5.0, 2.7, 1.0, 1.8, 1.3],
    # As if the base were surer of itself: with a larger vocabulary such a start is above 1.5 times chance.
    "a high start": [14.0, 13.9, 13.8, 13.5, 13.0, 12.0, 10.0, 8.0, 7.0, 6.0, 5.0, 4.0],
    "one odd batch": [9.8, 7.0, 5.0, 4.0, 3.0, 3.0, 14.0, 3.0, 3.0, 3.0],
    "a distillation": [0.0, 0.1, 0.2, 0.1, 0.3, 0.2],
    "never below chance": [8.4, 8.35, 8.4, 8.35, 8.33, 8.34],
}
LOST = {
    "0.2": [9.8, 11.3, 17.0, 38.8, 50.9, 64.3],
    "1.0": [9.8, 130.3, 259.7],
    "slowly": [9.8, 6.0, 4.0, 3.0, 3.0, 3.0, *[9.0] * 15],
    "a base that forgets": [1.3, 1.1, 1.1, *[9.5] * 10],
}


def faults(losses):
    course, found = None, []
    for loss in losses:
        course = LossTracker.after(course, loss)
        found.append(course.fault(WATCH))
    return [fault for fault in found if fault]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_is_left_alone(name):
    assert faults(HEALTHY[name]) == []


@pytest.mark.parametrize("name", LOST)
def test_a_lost_run_is_stopped(name):
    assert faults(LOST[name])


def test_what_is_said():
    assert faults([9.8, 130.3])[0] == (
        "loss/1 is 33.90 on average, it began at 9.80 and guessing at random gives 8.32"
    )
    assert faults([1.0, *[9.5] * 10])[0] == "loss/1 rose from 1.00 to 8.36, guessing at random gives 8.32"


def test_a_run_that_goes_on_remembers_its_beginning(trained_base, tmp_path):
    """Else the first loss after a kill would count as the beginning, however high it is by then."""
    config = Medusa1Config(**settings_for(trained_base, tmp_path))
    records = train(config)
    first = next(records).metrics["loss/1"]
    records.close()
    records = train(config)
    assert next(records).step == 2
    records.close()
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["course"]
    assert saved["first"] == pytest.approx(first)
    assert saved["mean"] != saved["first"]


def test_fresh_heads_far_above_chance_learn(trained_base, tmp_path):
    config = Medusa1Config(**settings_for(trained_base, tmp_path, warmup_steps=1))
    *_, last = train(config)
    assert last.folder is not None
    with pytest.raises(MedusaError, match=r"at step \d+ loss/1 is .* the run has diverged; lower the"):
        list(train(Medusa1Config(**settings_for(trained_base, tmp_path / "wild", learning_rate=5.0))))


# --- The learning rates that optimizers are given, step by step, against the formula written out.


STEPS, WARMUP = 40, 4


@pytest.fixture
def rates():
    """The rate of each step of each optimizer, by the optimizer's name."""
    found = {}

    def note(optimizer, *_):
        found.setdefault(type(optimizer).__name__, []).append(optimizer.param_groups[0]["lr"])

    hook = register_optimizer_step_pre_hook(note)
    yield found
    hook.remove()


def trapezoid(step, share):
    """Linear warm-up, constant, then linear to zero over the last ``share`` of the run."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    return min(1.0, (STEPS - step) / round(share * STEPS))


def test_a_run_that_was_broken_off_goes_on_with_the_rates_of_the_formula(corpus, rates):
    config = pretrain_config(corpus)
    records = pretrain(config)
    while next(records).step < 25:
        pass
    records.close()
    resumed = pretrain(config)
    assert next(resumed).step == 26
    *_, last = resumed
    assert last.step == STEPS
    factors = [trapezoid(step, config.decay_share) for step in range(STEPS)]
    assert rates["Muon"] == [config.matrix_learning_rate * factor for factor in factors]
    assert rates["AdamW"] == [config.learning_rate * factor for factor in factors]


def test_the_cosine_falls_from_the_end_of_the_warm_up_on():
    schedule = Schedule(STEPS, WARMUP, 1.0, "cosine")
    factors = [schedule.factor(step) for step in range(STEPS)]
    assert factors[:WARMUP] == [0.25, 0.5, 0.75, 1.0]
    assert factors[WARMUP:] == pytest.approx(
        [0.5 * (1 + cos(pi * step / (STEPS - WARMUP))) for step in range(STEPS - WARMUP)], rel=1e-15
    )
