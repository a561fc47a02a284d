"""Training within minutes: stages timed and sized, ended by the clock or by Stop, with what was learned."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training_runs import settings_for

from medusa_core.checkpoints.heads import read_heads
from medusa_core.checkpoints.locate import has_adapter
from medusa_core.config import LoadConfig
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError
from medusa_core.evaluation.limits import STOPPED, TIME_IS_UP
from medusa_core.loading.load import load_engine
from medusa_core.training.config import Medusa1Config, Medusa2Config, SelfDistillConfig
from medusa_core.training.fit import timed
from medusa_core.training.fit.measuring import load_result
from medusa_core.training.fit.timed import (
    LOADING,
    TIMING,
    TRAINED,
    TRAINING,
    WRITING,
    Job,
    run_job,
)

STAGES = {"one": Medusa1Config, "two": Medusa2Config}


@pytest.fixture
def job(trained_base, tmp_path):
    """Both stages of Medusa-2 on the small corpus, six steps each."""
    settings = settings_for(trained_base, "", checkpoint_every=1000)
    stages = [(name, recipe(**settings)) for name, recipe in STAGES.items()]
    return Job(tmp_path, 600.0, stages, steps=6)


def run(job, stop_at=lambda record: False):
    """All records; Stop is pressed at one of them."""
    pressed, records = [], []
    for record in run_job(job, lambda: bool(pressed)):
        records.append(record)
        if stop_at(record):
            pressed.append(True)
    return records


def steps(records, stage):
    return [r.progress.step for r in records if (r.part, r.stage) == (TRAINING, stage)]


def results(records):
    return {record.stage: record.result for record in records if record.part == TRAINED}


def test_stages_follow_each_other_and_go_on_from_what_was_learned(job):
    records = run(job)
    assert list(dict.fromkeys((record.part, record.stage) for record in records)) == [
        (part, stage) for stage in STAGES for part in (LOADING, TIMING, TRAINING, TRAINED)
    ]
    assert steps(records, "one") == steps(records, "two") == [1, 2, 3, 4, 5, 6]
    assert not any(record.ended for record in records)
    (first, heads), (second, both) = results(records).values()
    assert (first.start, second.start) == ("", str(heads))
    assert read_heads(heads).block_weight.any()
    assert has_adapter(both)
    looked = [
        bool([n for n in r.progress.metrics if n.startswith("heldout/")]) for r in records if r.progress
    ]
    assert sum(looked) >= 2 * 3  # of six steps at least every second is looked at
    assert not (job.folder / "timing").exists()


@pytest.mark.slow
def test_without_a_number_of_steps_they_fill_the_time(job):
    records = run(replace(job, stages=job.stages[:1], steps=0, seconds=6.0))
    (record,) = (record for record in records if record.part == TRAINED)
    assert record.progress.step > 4
    assert record.result[0].steps >= record.progress.step


@pytest.mark.parametrize("at", [1, 3])
def test_stopped_in_a_stage_its_steps_are_kept_and_no_other_begins(job, at):
    records = run(job, lambda record: record.part == TRAINING and record.progress.step == at)
    assert {record.stage for record in records} == {"one"}
    # The step that was going on when Stop was pressed is the last one.
    assert steps(records, "one") == list(range(1, at + 2))
    assert [record.ended for record in records if record.part == TRAINING][-1] == STOPPED
    assert read_heads(results(records)["one"][1]).block_weight.any()


def test_stopped_in_the_second_stage_both_results_are_there(job):
    records = run(job, lambda record: (record.part, record.stage) == (TRAINING, "two"))
    assert list(results(records)) == ["one", "two"]
    assert steps(records, "two") == [1, 2]


@pytest.mark.sample(1)
@pytest.mark.parametrize("stage", STAGES)
def test_stopped_while_steps_are_timed_the_stage_has_no_result(job, stage):
    records = run(job, lambda record: (record.part, record.stage) == (TIMING, stage))
    assert steps(records, stage) == []
    assert list(results(records)) == ([] if stage == "one" else ["one"])
    assert records[-1].part == TIMING  # nothing is loaded for a training that would take no step


def test_out_of_time_a_stage_ends_with_what_it_has(job):
    """No second is left: every stage still gets the one that it needs to learn something."""
    records = run(replace(job, steps=5000, seconds=0.0))
    assert list(results(records)) == list(STAGES)
    for stage in STAGES:
        taken = [record for record in records if (record.part, record.stage) == (TRAINING, stage)]
        assert 1 <= len(taken) < 5000
        assert taken[-1].ended == TIME_IS_UP
        assert taken[0].seconds_left > 0


def test_minutes_count_from_the_first_step_and_loading_is_told(job):
    """A clock that only moves while something loads: no time of the job's passes."""
    now = [0.0]

    def clock():
        return now[0]

    records = []
    for record in run_job(replace(job, stages=job.stages[:1], steps=2, seconds=60.0), clock=clock):
        records.append(record)
        if record.part == LOADING:
            now[0] += 1000.0  # before the next record is asked for
    assert steps(records, "one") == [1, 2]
    assert not any(record.ended for record in records)


def test_minutes_too_few_for_a_look_are_refused_with_those_that_do(job):
    ticks = itertools.count(step=1.0)  # a second between any two looks at the clock
    brief = replace(job, stages=job.stages[:1], steps=0, seconds=0.6)
    with pytest.raises(
        MedusaError, match=r"0\.01 min is too short: a training step .* give it \d+(\.5)? min"
    ):
        list(run_job(brief, clock=lambda: next(ticks)))


def test_closed_in_a_stage_a_job_leaves_a_checkpoint_and_the_folder_free(job):
    records = run_job(job)
    while next(records).part != TRAINING:
        pass
    records.close()
    assert (job.folder / "stage1" / "checkpoint.pt").is_file()


# --- text of the model's own


@pytest.fixture
def writing(job, trained_base):
    """The first stage, on text that the model writes without end."""
    text = SelfDistillConfig(
        model=str(trained_base), out=str(job.folder), recipe="", answers=100_000, answer_batch=4,
        answer_tokens=24, train="nothing", precision="float32",
    )  # fmt: skip
    name, config = job.stages[0]
    return replace(job, text=text, stages=[(name, replace(config, data=str(job.folder / "answers")))])


def test_text_is_written_until_its_share_of_the_time_is_up(writing):
    records = run(replace(writing, seconds=2.0))
    written = [record for record in records if record.part == WRITING]
    assert 1 <= len(written) < 100_000 / 4
    assert written[0].seconds_left <= 0.35 * 2.0
    assert written[-1].progress.tokens > 0
    assert "one" in results(records)


def test_stopped_while_text_is_written_nothing_is_trained(writing):
    records = run(writing, lambda record: record.part == WRITING and record.progress.step == 1)
    assert {record.part for record in records} == {LOADING, WRITING}
    assert list((writing.folder / "answers").glob("*.jsonl"))


def test_tokens_are_counted_while_a_batch_is_written(writing):
    long = replace(writing, text=replace(writing.text, answer_tokens=60, answer_batch=16))
    records = run(long, lambda record: record.part == WRITING and record.progress.step == 1)
    counts = [record.progress.tokens for record in records if record.part == WRITING]
    lines = [line for file in (writing.folder / "answers").glob("*.jsonl") for line in file.open()]
    within = [record for record in records if record.part == WRITING and not record.progress.step]
    assert len(within) > 3
    assert counts[0] > 0
    assert counts == sorted(counts)
    assert counts[-1] < len(lines) * (1 + 48 + 60)  # begin, beginning and answer at most


def test_stop_does_not_wait_for_the_rest_of_a_batch(writing):
    slow = replace(writing, text=replace(writing.text, answer_tokens=120, answer_batch=96))
    records = run(slow, lambda record: record.part == WRITING)
    assert [record.part for record in records] == [LOADING, WRITING]
    assert 0 < records[-1].progress.tokens <= 96 * 16
    assert not list((writing.folder / "answers").glob("*.jsonl"))


# --- the time of a step


@pytest.mark.parametrize(("most", "enough", "taken"), [(3, 1000.0, 3), (9, 0.0, 2)])
def test_steps_are_timed_until_enough_are_known(trained_base, tmp_path, monkeypatch, most, enough, taken):
    counted = []
    typical = timed._typical
    monkeypatch.setattr(timed, "_typical", lambda times: counted.append(len(times)) or typical(times))
    config = Medusa1Config(**settings_for(trained_base, tmp_path / "run"))
    assert 0 < timed.step_seconds(config, tmp_path / "scratch", most, enough) < 60
    assert counted == [taken]
    assert list(tmp_path.iterdir()) == []


# --- the result, loaded


def test_a_result_stands_on_the_weights_that_are_there(job, trained_base):
    found = results(run(job))
    load = LoadConfig(str(trained_base), heads="none", dtype="float32", device="cpu")
    base = load_engine(load)
    heads, both = (load_result(*found[stage], load, base) for stage in STAGES)
    assert heads.target is base.target
    assert both.target is not base.target  # an adapter is merged into it
    assert medusa_draft(both).heads.count == 3
    alone = load_result(*found["one"], load)
    assert alone.target is not base.target
    weights = [medusa_draft(engine).heads.block_weight for engine in (heads, alone)]
    assert torch.equal(*weights)
    assert Path(found["one"][1]).is_dir()
