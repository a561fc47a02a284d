"""The lab behind the Train tab: tiny heads really learn, a stopped run is usable, no file is left behind."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import gradio as gr
import page_runs
import pytest
from gradio import processing_utils
from page_runs import run_decode
from training_corpus import SENTENCES

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.loading.load import load_engine
from medusa_core.training import divergence
from ui.records.settings import YOURS
from ui.records.updates import StopFlag
from ui.runs.session import Session
from ui.serving.policy import Policy
from ui.tabs.train import download as take_home
from ui.tabs.train import run as train_run
from ui.tabs.train.download import FOLDER, write_zip
from ui.tabs.train.plan import EXAMPLES, FILE, MOST_BYTES, OWN, PASTE, Plan, weight_for
from ui.tabs.train.run import train_heads
from ui.tabs.trees.head_stats import stats_of

TEXT = "\n<|endoftext|>\n".join(SENTENCES * 20)
PLAN = Plan("medusa1", PASTE, text=TEXT, minutes=2, steps=60, heads=3, learning_rate=0.01)
DECODE = page_runs.SETTINGS | {"max_new_tokens": 40, "heads": YOURS}
PROMPTS = [{"kind": "Story", "prompts": [{"label": "a", "text": "The cat saw a tree and"},
                                         {"label": "b", "text": "The owl saw a"}]}]  # fmt: skip


@pytest.fixture(scope="module")
def assets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("assets")
    (folder / "prompts.json").write_text(json.dumps(PROMPTS), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def session(trained_base, assets):
    """A page around a base that has no heads at all."""
    return Session(LoadConfig(str(trained_base), dtype="float32", device="cpu"), assets)


@pytest.fixture(autouse=True)
def short_measuring(monkeypatch):
    """What is measured after training takes as long as the training of tiny heads."""
    monkeypatch.setattr(train_run, "EFFORT", replace(train_run.EFFORT, rounds=1, sizes=(1, 8)))


@pytest.fixture(autouse=True)
def nothing_left_behind(tmp_path, monkeypatch):
    """Temporary folders of a test lie in one place, which is empty afterwards."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield
    assert list(place.glob("medusa-train-*")) == []


def lessons_of(session, plan, stop_at=""):
    """All lessons; Stop is pressed at the first status that begins with ``stop_at``."""
    flag, seen = StopFlag(), []
    for update in train_heads(session, plan, flag):
        seen.append(update)
        if stop_at and (update.status or "").startswith(stop_at):
            flag.stopped, stop_at = True, ""
    assert not session.busy
    return seen


def trained_by(updates):
    assert [update.status for update in updates if update.problem] == []
    return updates[-1].trained


def problem_of(updates):
    assert updates[-1].problem
    assert updates[-1].trained is None
    return updates[-1].status


def shared_engine(session):
    return next(item for item in session.on_engine(lambda engine: iter([engine])) if isinstance(item, Engine))


def last_curves(updates):
    return [update.curves for update in updates if update.curves][-1]


def test_fresh_heads_become_useful_and_are_used(session):
    updates = lessons_of(session, PLAN)
    trained = trained_by(updates)
    gain = trained.gain
    assert gain.tokens_per_step > gain.fresh_tokens_per_step + 0.3
    assert 2 <= gain.nodes <= 8
    curves = last_curves(updates)
    assert [point.step for point in curves.losses] == list(range(1, 61))
    assert curves.losses[-1].heads[0] < curves.losses[0].heads[0] - 1
    assert len(curves.scores) == 4
    assert curves.scores[-1].top1[0] > 0.5
    assert all(five >= one for p in curves.scores for one, five in zip(p.top1, p.top5, strict=True))
    selection = trained.selection
    updates = list(run_decode(session, "The cat saw a", DECODE | {"selection": selection}, StopFlag()))
    assert any(trained.selection.label in (update.badge or "") for update in updates)
    assert updates[-1].trace["output"]["tokens_per_step"] > 1.5
    assert len(updates[-1].trace["config"]["tree"]) == gain.nodes - 1
    # One copy of the base: the heads stand on the session's own weights.
    own = session.own_engine(selection)
    assert own.target is shared_engine(session).target
    assert len(medusa_draft(own).accuracies) == 3
    assert own.info.base == shared_engine(session).info.base
    # Trees shows the times by which their tree was chosen.
    assert stats_of(session, selection).latency == medusa_draft(own).latency != ()


def test_a_stopped_run_keeps_what_was_learned(session):
    updates = lessons_of(session, replace(PLAN, steps=2000, minutes=9), stop_at="Training")
    words = " ".join(update.status or "" for update in updates)
    assert "Stopped at step" in words
    trained = trained_by(updates)
    assert 1 <= len(last_curves(updates).losses) < 2000
    selection = trained.selection
    assert medusa_draft(session.own_engine(selection)).default_tree.size == trained.gain.nodes
    # What was learned by then, not fresh heads.
    assert medusa_draft(session.own_engine(selection)).heads.block_weight.abs().sum() > 0


def test_stop_while_measuring_leaves_the_heads_usable(session):
    updates = lessons_of(session, replace(PLAN, steps=8), stop_at="Counting")
    trained = trained_by(updates)
    assert trained.gain is None
    assert "no size was timed" in trained.package.card
    assert medusa_draft(session.own_engine(trained.selection)).heads.count == 3


def test_stop_before_the_first_step_is_said(session):
    updates = lessons_of(session, replace(PLAN, source=OWN, text="", steps=0), stop_at="The model writes")
    assert updates[-1].trained is None
    assert updates[-1].status == "Stopped before the first step: nothing was learned."


def test_the_minutes_end_a_run_whatever_the_steps(session):
    updates = lessons_of(session, replace(PLAN, minutes=0.02, steps=20_000))
    assert trained_by(updates) is not None
    assert any("The time is up at step" in (update.status or "") for update in updates)


@pytest.mark.slow
@pytest.mark.parametrize("source", [OWN, pytest.param(EXAMPLES, marks=pytest.mark.slow)])
def test_the_model_writes_its_own_text_within_the_minutes(session, source):
    updates = lessons_of(session, replace(PLAN, source=source, text="", minutes=0.1, steps=0))
    assert trained_by(updates) is not None
    statuses = [update.status or "" for update in updates]
    assert any(words.startswith("The model writes text to learn from") for words in statuses)
    assert any("tokens/s" in words and words.startswith("Training") for words in statuses)


@pytest.fixture(scope="module")
def joint(trained_base, assets):
    """A public page and what it said while it trained heads and model together."""
    load = LoadConfig(str(trained_base), dtype="float32", device="cpu")
    page = Session(load, assets, Policy(public=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_run, "EFFORT", replace(train_run.EFFORT, rounds=1, sizes=(1, 8)))
        return page, lessons_of(page, replace(PLAN, recipe="direct", steps=6, head_weight=1.0))


def test_the_joint_recipes_train_the_base_too(joint):
    session, updates = joint
    own = session.own_engine(trained_by(updates).selection)
    assert medusa_draft(own).heads.count == 3
    assert own.target is not shared_engine(session).target
    assert last_curves(updates).losses[-1].base is not None
    assert last_curves(updates).stages == ()


@pytest.mark.slow
def test_joint_training_stopped_in_its_second_stage_is_usable(session):
    plan = replace(PLAN, recipe="medusa2", steps=200, minutes=0.3, head_weight=0.01)
    updates = lessons_of(session, plan, stop_at="Training heads and model")
    own = session.own_engine(trained_by(updates).selection)
    assert own.target is not shared_engine(session).target
    curves = last_curves(updates)
    assert [name for _, name in curves.stages] == ["heads alone", "heads and model together"]
    assert curves.losses[0].base is None
    assert curves.losses[-1].base is not None


def test_a_file_is_read_and_a_bad_line_named_without_its_path(session, tmp_path):
    good = tmp_path / "Some Name.JSONL"
    good.write_text("".join(json.dumps({"text": s}) + "\n" for s in SENTENCES * 20), encoding="utf-8")
    plan = replace(PLAN, source=FILE, text="", upload=str(good), steps=8)
    assert trained_by(lessons_of(session, plan)) is not None
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "one"}\n{"text": 3}\n', encoding="utf-8")
    words = problem_of(lessons_of(session, replace(plan, upload=str(bad))))
    assert words.startswith('Line 2 of data/your-file.jsonl: "text" is a number')
    assert tempfile.gettempdir() not in words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"text": " "}, "there is no text: paste some"),
        ({"text": "x" * 200_001}, "the text has 200001 characters, the page takes 200000"),
        ({"source": FILE}, "there is no file"),
        ({"source": "elsewhere"}, "there is no text to learn from"),
        ({"recipe": "pretrain"}, "the recipe is 'pretrain'"),
        ({"minutes": 31}, "the training time in minutes is 31: choose 0 to 30"),
        ({"minutes": float("nan")}, "the training time in minutes is nan"),
        ({"steps": -1}, "the number of steps is -1"),
        ({"heads": 99}, "the number of heads is 99"),
        ({"learning_rate": 0.0}, "the learning rate is 0.0"),
        ({"text": '{"text": "one"}\nnot json'}, "line 2 of data/your-text.jsonl is not valid JSON"),
    ],
)
def test_what_cannot_be_trained_is_said_in_one_line(session, changes, words):
    said = problem_of(lessons_of(session, replace(PLAN, **changes)))
    assert words.casefold() in said.casefold()
    assert "\n" not in said


def test_a_file_that_is_too_large_or_of_another_kind_is_refused(session, tmp_path):
    plan = replace(PLAN, source=FILE, text="")
    large = tmp_path / "large.txt"
    large.write_bytes(b"x" * (MOST_BYTES + 1))
    assert "the page takes 5" in problem_of(lessons_of(session, replace(plan, upload=str(large))))
    packed = tmp_path / "packed.txt.xz"
    shutil.copyfile(large, packed)
    assert "upload .txt or .jsonl" in problem_of(lessons_of(session, replace(plan, upload=str(packed))))


def test_leaving_the_page_ends_the_run(session):
    run = train_heads(session, replace(PLAN, steps=2000), StopFlag())
    while not (next(run).status or "").startswith("Training"):
        pass
    run.close()
    assert not session.busy


def text_of(engine):
    """The tokens of a run and the steps it took."""
    prompt = engine.encode("The cat saw a")
    steps = list(engine.stream(prompt, GenerationConfig.of(max_new_tokens=30)))
    return [token for step in steps for token in step.emitted], len(steps)


@pytest.mark.parametrize("recipe", ["medusa1", pytest.param("direct", marks=pytest.mark.slow)])
def test_heads_are_taken_home_and_used_there(session, tmp_path, recipe):
    """Unpacked and named with --heads alone they are the engine that was trained, adapter included."""
    trained = trained_by(lessons_of(session, replace(PLAN, recipe=recipe, steps=20)))
    own = session.own_engine(trained.selection)
    for name in ("heads.zip", "again.zip"):  # equal bytes: gradio keeps one file of them
        write_zip(own, trained.package, tmp_path / name)
    assert (tmp_path / "heads.zip").read_bytes() == (tmp_path / "again.zip").read_bytes()
    with ZipFile(tmp_path / "heads.zip") as packed:
        names = {Path(name).name for name in packed.namelist()}
        packed.extractall(tmp_path)
    folder = tmp_path / FOLDER
    assert names >= {"config.json", "tree.json", "accuracies.json", "README.md", "medusa_lm_head.safetensors"}
    assert ("adapter_model.safetensors" in names) == (recipe == "direct")
    home = load_engine(LoadConfig(heads=str(folder), dtype="float32", device="cpu"))
    assert text_of(home) == text_of(own)
    assert medusa_draft(home).default_tree.choices == medusa_draft(own).default_tree.choices
    assert medusa_draft(home).accuracies == medusa_draft(own).accuracies
    assert f"--heads {FOLDER}" in (folder / "README.md").read_text(encoding="utf-8")


def test_the_zip_is_hashed_before_gradio_s_event_loop_has_it(joint, tmp_path, monkeypatch, run_apart):
    session, trained = joint[0], trained_by(joint[1])
    button = gr.DownloadButton()
    button.GRADIO_CACHE = str(tmp_path / "cache")
    ((file, said),) = take_home._packed(session, button, trained)
    assert said.startswith("medusa-heads.zip, ")
    with ZipFile(file) as packed:
        assert packed.testzip() is None
    hashed = []
    monkeypatch.setattr(processing_utils, "hash_file", lambda path, *_: hashed.append(path) or "hash")
    assert run_apart(button.async_move_resource_to_block_cache(file)) == file
    assert hashed == []
    assert file in button.temp_files  # so that it is deleted when it is old


def test_on_a_public_page_no_path_is_taken_home(joint, trained_base, tmp_path):
    session, trained = joint[0], trained_by(joint[1])
    write_zip(session.own_engine(trained.selection), trained.package, tmp_path / "heads.zip")
    with ZipFile(tmp_path / "heads.zip") as packed:
        texts = [packed.read(name) for name in packed.namelist() if not name.endswith(".safetensors")]
    assert texts
    assert not any(str(trained_base.parent).encode() in text for text in texts)
    assert not any(tempfile.gettempdir().encode() in text for text in texts)
    assert any(b"--model WHERE_model_LIES" in text for text in texts)


def test_heads_too_large_for_the_page_are_refused(joint, tmp_path, monkeypatch):
    session, trained = joint[0], trained_by(joint[1])
    own, package = session.own_engine(trained.selection), trained.package
    heads = 2 * sum(p.numel() for p in medusa_draft(own).heads.parameters())
    monkeypatch.setattr(take_home, "MOST_BYTES", heads + package.adapter.size - 1)
    with pytest.raises(MedusaError, match="MB, the page hands out 0: train them with `python -m medusa_core"):
        write_zip(own, package, tmp_path / "heads.zip")
    assert not (tmp_path / "heads.zip").exists()


def test_a_run_that_diverges_is_said(session, monkeypatch):
    """The largest rate of the page does no such harm to the tiny model, so the bar is lowered."""
    monkeypatch.setattr(divergence, "_FAR_ABOVE", 0.001)
    said = problem_of(lessons_of(session, replace(PLAN, steps=80)))
    assert "the run has diverged; lower the learning rate" in said
    assert tempfile.gettempdir() not in said


def test_plans_take_the_papers_weights():
    assert weight_for("medusa2", "text") == 0.2
    assert weight_for("medusa2", "self") == 0.01
    assert weight_for("direct", "self") == 1.0
    with pytest.raises(MedusaError):
        replace(PLAN, recipe="").check()
