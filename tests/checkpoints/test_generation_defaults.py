"""What a model's generation_config.json asks for, and what a folder of weights is called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from medusa_core import generate, load
from medusa_core.checkpoints.sources import shown_name
from medusa_core.config import LoadConfig
from medusa_core.files import folder_title
from ui.serving.models import name_of


@pytest.fixture
def asking(base):
    """The tiny model with settings of ``generate`` in its folder."""

    def build(**settings):
        (base / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
        return base

    return build


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"repetition_penalty": 1.3}, ["repetition_penalty 1.3", "--penalty 1.3 --penalty-window 65536"]),
        ({"no_repeat_ngram_size": 3}, ["no_repeat_ngram_size 3, which counts for nothing here"]),
        ({"suppress_tokens": [1, 2]}, ["suppress_tokens [1, 2]"]),
    ],
)
def test_a_setting_that_is_not_obeyed_is_named(asking, caplog, settings, words):
    engine = load(asking(**settings), dtype="float32")
    (note,) = engine.info.notes
    assert all(part in note for part in words)
    assert caplog.messages == [f"warning: base: {note}"]


def test_settings_that_do_nothing_are_not_mentioned(asking, caplog):
    idle = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "do_sample": True, "temperature": 0.7}
    assert load(asking(**idle), dtype="float32").info.notes == ()
    assert caplog.messages == []


def test_the_flags_that_are_named_give_what_transformers_makes_of_it(asking):
    folder = asking(repetition_penalty=1.3)
    engine = load(folder, dtype="float32")
    prompt = engine.encode("abcab")
    ours = generate(engine, prompt, penalty=1.3, penalty_window=65536, max_new_tokens=24, ignore_eos=True)
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([prompt])
    theirs = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    assert ours.token_ids == theirs[0, len(prompt) :].tolist()
    plain = generate(engine, prompt, max_new_tokens=24, ignore_eos=True)
    assert ours.token_ids != plain.token_ids


# --- What a folder of weights is called: its name, with the folder around it where many have that name.


@pytest.mark.parametrize(
    ("path", "title"),
    [("/owls/model", "owls/model"), ("/owls/Heads", "owls/Heads"), ("/owls", "owls"), ("/model", "model")],
)  # fmt: skip
def test_a_name_that_tells_nothing_is_said_with_the_folder_around_it(path, title):
    assert folder_title(Path(path)) == title


def test_the_folder_of_a_persons_own_files_is_not_named():
    assert folder_title(Path.home() / "model") == "model"


def test_the_page_says_it_so_and_weights_name_their_base_by_a_name_that_is_no_repository(tmp_path):
    folder = tmp_path / "owls" / "model"
    folder.mkdir(parents=True)
    assert name_of(LoadConfig(str(folder))) == "owls/model"
    assert shown_name(str(folder)) == "model"
