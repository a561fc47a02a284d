"""What a fit is given: prompts and dialogues, and what is refused with its cause."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import tiny
from fits import ignore, tiny_config
from training_corpus import SENTENCES

from medusa_core.cli.main import main
from medusa_core.errors import MedusaError
from medusa_core.training.base_model import load_tokenizer
from medusa_core.training.fit.prompts import PROMPTS, heldout_of, split_prompts
from medusa_core.training.fit.run import prepare

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
