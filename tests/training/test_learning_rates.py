"""The learning rates that optimizers are given, step by step, against the formula written out."""

from __future__ import annotations

from math import cos, pi

import pytest
from test_training import pretrain_config
from torch.optim.optimizer import register_optimizer_step_pre_hook

from medusa_core.training.loop import Schedule
from tools.make_model.pretrain import pretrain

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


def test_the_cosine_falls_over_the_whole_run_behind_its_warm_up():
    schedule = Schedule(STEPS, WARMUP, 1.0, "cosine")
    factors = [schedule.factor(step) for step in range(STEPS)]
    assert factors[:WARMUP] == [0.25, 0.5, 0.75, 1.0]
    assert factors[WARMUP:] == pytest.approx(
        [0.5 * (1 + cos(pi * step / STEPS)) for step in range(WARMUP, STEPS)], rel=1e-15
    )
