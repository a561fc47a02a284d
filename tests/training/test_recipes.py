"""The recipes for heads on a tiny base that has learned its corpus: they learn, resume, load and decode."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from paths import ROOT
from training_corpus import losses_of
from training_runs import finish, medusa2_config, settings_for
from transformers import AutoModelForCausalLM, GenerationMixin

from medusa_core.checkpoints.adapters import apply_adapter
from medusa_core.checkpoints.heads import read_heads
from medusa_core.checkpoints.locate import has_adapter
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError
from medusa_core.loading.load import load_engine
from medusa_core.training import answers
from medusa_core.training.config import DirectConfig, Medusa1Config, SelfDistillConfig
from medusa_core.training.recipes import result_of, train

PROMPT = "The cat saw a"


def tokens_per_step(load, tree="cartesian-2x2x2"):
    engine = load_engine(replace(load, dtype="float32", device="cpu"))
    steps = list(engine.stream(engine.encode(PROMPT), GenerationConfig.of(tree=tree, max_new_tokens=60)))
    return sum(len(step.emitted) for step in steps) / len(steps)


def test_training_makes_useless_heads_useful(trained_base, tmp_path):
    config = Medusa1Config(**settings_for(trained_base, tmp_path / "run", tokens=120 * 512))
    records = train(config)
    next(records)
    fresh = replace(config, out=str(tmp_path / "fresh"), tokens=512, learning_rate=0.0)
    before = tokens_per_step(result_of(fresh, finish(fresh)))
    *_, last = records
    after = tokens_per_step(result_of(config, last.folder))
    assert after > 1.4 * before


def test_medusa1_writes_heads_metrics_and_a_card(trained_base, tmp_path):
    folder = finish(Medusa1Config(**settings_for(trained_base, tmp_path)))
    assert folder == tmp_path / "heads"
    assert read_heads(folder).lm_weight.shape[::2] == (3, 48)
    losses = losses_of(tmp_path, "loss/1")
    assert losses[30] < losses[10]
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert 0 <= result["heldout/chat/top1/1"] <= result["heldout/chat/top5/1"] <= 1
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert f"| chat | {result['heldout/chat/base']:.3f} | {result['heldout/chat/top1/1']:.2f} / " in card


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(
            {"head_warmup": "two-stage", "stage1_tokens": 10 * 512}, marks=pytest.mark.slow, id="two stages"
        ),
        pytest.param({"head_warmup": "sine", "teacher": "self"}, id="sine, own teacher"),
        pytest.param(
            {"head_warmup": "none", "lora_lm_head": False},
            marks=pytest.mark.slow,
            id="no adapter on the LM head",
        ),
    ],
)
def test_adapter_and_heads_load_as_what_was_trained(trained_base, tmp_path, changes):
    config = medusa2_config(trained_base, tmp_path / "adapter", **changes)
    folder = finish(config)
    assert has_adapter(folder)
    merged = replace(config, out=str(tmp_path / "merged"), save="merged")
    whole = finish(merged)
    engines = [
        load_engine(replace(result_of(c, f), dtype="float32")) for c, f in ((config, folder), (merged, whole))
    ]
    ids = torch.tensor([engines[0].encode(PROMPT)])
    with torch.no_grad():  # the merged weights are bfloat16
        logits = [engine.target.model(ids).logits for engine in engines]
        untouched = AutoModelForCausalLM.from_pretrained(trained_base, dtype=torch.float32)(ids).logits
    torch.testing.assert_close(logits[0], logits[1], atol=0.05, rtol=0.05)
    assert (logits[0] - untouched).abs().max() > 1e-3
    assert [medusa_draft(engine).heads.count for engine in engines] == [3, 3]
    steps = list(engines[0].stream(ids[0].tolist(), GenerationConfig.of(max_new_tokens=20, ignore_eos=True)))
    assert sum(len(step.emitted) for step in steps) == 20


@pytest.fixture(scope="module")
def trained_together(trained_base, tmp_path_factory):
    """The folder of heads and their adapter."""
    return finish(medusa2_config(trained_base, tmp_path_factory.mktemp("together"), head_warmup="none"))


def test_an_untied_lm_head_leaves_the_embedding_alone(trained_base, trained_together):
    plain = AutoModelForCausalLM.from_pretrained(trained_base, dtype=torch.float32)
    embedding = plain.get_input_embeddings().weight.clone()
    adapted = apply_adapter(plain, trained_together)
    torch.testing.assert_close(adapted.get_input_embeddings().weight, embedding)
    assert (adapted.get_output_embeddings().weight - embedding).abs().max() > 1e-4


def test_the_bare_base_can_still_be_had(trained_base, trained_together):
    assert load_engine(LoadConfig(model=str(trained_base), heads=str(trained_together))).drafts
    assert load_engine(LoadConfig(model=str(trained_base), heads="none")).drafts == {}


@pytest.mark.slow
def test_a_teacher_holds_the_base_closer_than_its_text_does(trained_base, tmp_path):
    changes = {"head_warmup": "none", "backbone_learning_rate": 5e-3, "head_weight": 0.2}
    finish(medusa2_config(trained_base, tmp_path / "taught", teacher="self", **changes))
    finish(medusa2_config(trained_base, tmp_path / "alone", **changes))
    finish(DirectConfig(**settings_for(trained_base, tmp_path / "direct", lora=False)))
    taught = losses_of(tmp_path / "taught", "loss/base")
    assert taught[30] < 0.05  # a divergence from itself, not a loss
    loss = {n: json.loads((tmp_path / n / "result.json").read_text())["heldout/chat/base"]
            for n in ("taught", "direct")}  # fmt: skip
    assert loss["taught"] < loss["direct"] + 0.05


@pytest.mark.parametrize("recipe", [pytest.param("medusa1", marks=pytest.mark.slow), "medusa2"])
def test_a_killed_run_goes_on_with_the_same_losses(trained_base, tmp_path, recipe):
    def config(name):
        if recipe == "medusa1":
            return Medusa1Config(**settings_for(trained_base, tmp_path / name))
        return medusa2_config(trained_base, tmp_path / name, head_warmup="sine", lora_dropout=0.2)

    finish(config("whole"))
    records = train(config("broken"))
    while next(records).step < 17:
        pass
    with pytest.raises(KeyboardInterrupt):
        records.throw(KeyboardInterrupt)
    finish(config("broken"))
    assert losses_of(tmp_path / "broken") == pytest.approx(losses_of(tmp_path / "whole"), abs=1e-4)


def test_accumulated_passes_make_the_same_step(trained_base, tmp_path):
    finish(Medusa1Config(**settings_for(trained_base, tmp_path / "once", tokens=10 * 512)))
    finish(Medusa1Config(**settings_for(trained_base, tmp_path / "twice", tokens=10 * 512, accumulate=2)))
    assert losses_of(tmp_path / "twice")[10] == pytest.approx(losses_of(tmp_path / "once")[10], abs=2e-3)


def test_gradient_checkpointing_changes_nothing_but_memory(trained_base, tmp_path):
    changes = {"tokens": 10 * 512, "head_warmup": "none", "lora_dropout": 0.0}
    finish(medusa2_config(trained_base, tmp_path / "plain", **changes))
    finish(medusa2_config(trained_base, tmp_path / "again", gradient_checkpointing=True, **changes))
    assert losses_of(tmp_path / "again")[10] == pytest.approx(losses_of(tmp_path / "plain")[10], abs=1e-4)


@pytest.mark.filterwarnings("error::FutureWarning")
def test_nothing_is_said_about_old_names_of_the_libraries(trained_base, tmp_path):
    """Neither while an adapter is trained nor when it is loaded."""
    config = medusa2_config(
        trained_base, tmp_path, head_warmup="none", tokens=512, gradient_checkpointing=True
    )
    assert load_engine(result_of(config, finish(config))).drafts


@pytest.mark.slow
def test_two_processes_take_the_same_steps_as_one(trained_base, tmp_path):
    changes = {"tokens": 10 * 512}
    finish(Medusa1Config(**settings_for(trained_base, tmp_path / "one", **changes)))
    flags = settings_for(trained_base, tmp_path / "two", **changes)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2",
        "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
        "--main_process_port", str(port),
        "-m", "medusa_core", "train", "medusa1",
        *(word for name, value in flags.items() for word in (f"--{name.replace('_', '-')}", str(value))),
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert losses_of(tmp_path / "two")[10] == pytest.approx(losses_of(tmp_path / "one")[10], abs=2e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_tokens": 500}, "multiple of 64"),
        ({"optimizer": "adamw8bit"}, "needs a CUDA GPU: use --optimizer adamw"),
        ({"base_4bit": True}, "need a CUDA GPU and bitsandbytes: drop --base-4bit"),
        ({"data": "nowhere.jsonl"}, "no file or folder nowhere.jsonl"),
        ({"model": "./nowhere"}, "no folder ./nowhere"),
        ({"start": "./nowhere"}, "no folder ./nowhere"),
    ],
)
def test_bad_settings_are_refused_with_their_cause(trained_base, tmp_path, changes, message):
    with pytest.raises(MedusaError, match=message):
        finish(Medusa1Config(**settings_for(trained_base, tmp_path, **changes)))


@pytest.mark.skipif(find_spec("trackio") is not None, reason="trackio is installed here")
def test_a_tracker_that_is_not_installed_is_named(trained_base, tmp_path):
    with pytest.raises(MedusaError, match="pip install trackio"):
        finish(Medusa1Config(**settings_for(trained_base, tmp_path, track="trackio")))


def test_a_tracker_gets_the_metrics(trained_base, tmp_path):
    pytest.importorskip("tensorboard")
    finish(Medusa1Config(**settings_for(trained_base, tmp_path, tokens=10 * 512, track="tensorboard")))
    assert list(tmp_path.rglob("events.out.tfevents.*"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_4bit": True}, "cannot be held in 4 bits"),
        ({"lm_head": "base"}, "use --lm-head own, or --no-lora-lm-head"),
        ({"teacher": "self", "lora": False}, "its own teacher only with its adapter off"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(trained_base, tmp_path, changes, message):
    with pytest.raises(MedusaError, match=message):
        finish(medusa2_config(trained_base, tmp_path, head_warmup="none", **changes))


# --- self-distillation


def distill_config(base, out, **changes):
    own = {"answers": 24, "answer_batch": 8, "answer_tokens": 20, "lora_rank": 4, "tokens": 20 * 512}
    return SelfDistillConfig(**settings_for(base, out, **(own | changes)))


def answers_of(folder):
    return {file.stem: [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            for file in sorted((folder / "answers").glob("*.jsonl"))}  # fmt: skip


def test_the_base_writes_from_the_corpus_and_learns_from_it(trained_base, tmp_path):
    folder = finish(distill_config(trained_base, tmp_path))
    answers = answers_of(tmp_path)
    assert set(answers) == {"story", "chat"}
    assert sum(map(len, answers.values())) == 24
    assert has_adapter(folder)
    assert losses_of(tmp_path / "medusa2", "loss/1")[20] < losses_of(tmp_path / "medusa2", "loss/1")[10] + 0.1


def test_without_a_corpus_the_base_invents_the_beginnings(trained_base, tmp_path):
    config = distill_config(trained_base, tmp_path, data_root=str(tmp_path), train="nothing")
    finish(config)
    texts = [record["text"] for record in answers_of(tmp_path)["invented"]]
    assert len(texts) == 24
    assert len(set(texts)) > 12


def test_dialogues_are_answered_turn_by_turn(trained_base, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    lines = [{"turns": ["The cat saw", "And the dog?"]}, {"prompt": "The owl"}]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    finish(distill_config(trained_base, tmp_path, prompts=str(prompts), train="medusa1"))
    roles = {tuple(m["role"] for m in record["messages"]) for record in answers_of(tmp_path)["prompts"]}
    assert roles == {("user", "assistant"), ("user", "assistant", "user", "assistant")}


def test_all_kinds_of_a_batch_are_written_at_once(trained_base, tmp_path, monkeypatch):
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    (prompts / "cats.txt").write_text("The cat saw\n", encoding="utf-8")
    (prompts / "dogs.txt").write_text("The dog saw\n", encoding="utf-8")
    mixed = [{"text": "The owl saw"}, {"prompt": "What saw the owl?"}]
    (prompts / "owls.jsonl").write_text("".join(json.dumps(one) + "\n" for one in mixed), encoding="utf-8")
    (prompts / "chats.jsonl").write_text('{"prompt": "What saw the cat?"}\n', encoding="utf-8")
    called, plain = [], GenerationMixin.generate

    def generate(model, ids, **settings):
        called.append(len(ids))
        return plain(model, ids, **settings)

    monkeypatch.setattr(GenerationMixin, "generate", generate)
    finish(distill_config(trained_base, tmp_path, prompts=str(prompts), answer_batch=24, answer_tokens=8,
                          train="nothing"))  # fmt: skip
    written = answers_of(tmp_path)
    texts, chats = (sum(name in record for kind in written.values() for record in kind)
                    for name in ("text", "messages"))  # fmt: skip
    assert called == [texts, chats]
    assert texts + chats == 24
    assert set(written) == {"cats", "dogs", "owls", "chats"}
    assert all(record["text"].startswith("The cat saw") for record in written["cats"])
    assert all(record["text"].startswith("The dog saw") for record in written["dogs"])
    assert {record["messages"][0]["content"] for record in written["chats"]} == {"What saw the cat?"}
    owls = [record.get("text") or record["messages"][0]["content"] for record in written["owls"]]
    assert {owl[:11] for owl in owls} == {"The owl saw", "What saw th"}


def test_a_blank_text_is_left_out(trained_base, tmp_path, monkeypatch):
    texts = itertools.cycle(["The owl", " \n"])
    monkeypatch.setattr(answers.Writer, "_text", lambda writer, tokens: next(texts))
    finish(distill_config(trained_base, tmp_path, train="nothing"))
    written = [record["text"] for records in answers_of(tmp_path).values() for record in records]
    assert written == ["The owl"] * 12


def test_pauses_within_an_answer_change_no_word(trained_base, tmp_path, monkeypatch):
    written = []
    for number in (3, 1000):
        monkeypatch.setattr(answers, "_AT_ONCE", number)
        finish(distill_config(trained_base, tmp_path / str(number), train="nothing"))
        written.append(answers_of(tmp_path / str(number)))
    assert written[0] == written[1]


def test_answers_go_on_where_they_were_broken_off(trained_base, tmp_path):
    finish(distill_config(trained_base, tmp_path / "whole", train="nothing"))
    config = distill_config(trained_base, tmp_path / "broken", train="nothing")
    records = train(config)
    next(records)
    records.close()
    with open(tmp_path / "broken" / "answers" / "story.jsonl", "a", encoding="utf-8") as file:
        file.write('{"batch": 1, "text": "half a li')  # as a kill in the middle of a batch leaves it
    finish(config)
    assert answers_of(tmp_path / "broken") == answers_of(tmp_path / "whole")
