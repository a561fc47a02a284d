"""``--method auto``: whose weights are there drafts, and a model without any decodes all the same."""

from __future__ import annotations

import json

import pytest

from medusa_core import MedusaError, generate, load
from medusa_core.config import LoadConfig
from medusa_core.loading import load as loading

SHORT = ["--dtype", "float32", "--max-new-tokens", "8", "--json"]


def tokens_of(out):
    return json.loads(out.splitlines()[-1])["token_ids"]


def test_a_model_without_heads_decodes_with_lookup_says_so_and_names_fit(command, base):
    code, out, err = command(["generate", "abcabc", "--model", base, *SHORT])
    assert code == 0, err
    assert " · lookup, match" in err
    assert f"note: there are no heads, so lookup drafts: `fit --model {base}` trains some\n" in err
    assert tokens_of(out) == tokens_of(
        command(["generate", "abcabc", "--model", base, "--method", "none", *SHORT])[1]
    )


def test_heads_that_are_there_draft_without_a_note(command, engine_folder):
    _, _, err = command(["generate", "abc", "--model", engine_folder, *SHORT])
    assert " · medusa, match" in err
    assert "note:" not in err
    _, _, err = command(["generate", "abc", "--model", engine_folder, "--heads", "none", *SHORT])
    assert " · lookup, match" in err
    assert "note:" not in err  # none were wanted


def test_a_chat_says_it_too(command, base):
    code, _, err = command(["chat", "--model", base, "--dtype", "float32"], typed="/quit\n")
    assert code == 0
    assert "note: there are no heads, so lookup drafts" in err


def test_in_python_the_weights_that_are_there_draft(engine, base):
    assert generate(engine, "abc", max_new_tokens=8, trace=True).trace.config.drafter.name == "medusa"
    bare = load(base, dtype="float32")
    assert generate(bare, "abcabc", max_new_tokens=8, trace=True).trace.config.drafter.name == "lookup"
    with pytest.raises(MedusaError, match="method medusa needs weights"):
        generate(bare, "abc", method="medusa")


def test_missing_weights_are_known_before_the_model_is_read(base, monkeypatch):
    def read(*_, **__):
        raise AssertionError("weights were read")

    monkeypatch.setattr(loading, "_read", read)
    with pytest.raises(MedusaError, match=r"base brings none: name them with --heads, .* lookup$"):
        loading.load_engine(LoadConfig(model=str(base)), methods=["medusa"])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--method", "lockup"], "--method is 'lockup': did you mean lookup?"),
        (["--method", "medusa+lokup"], "did you mean medusa+lookup?"),
        (["--acceptance", "typicle"], "--acceptance is 'typicle': did you mean typical?"),
        (["--temprature", "1"], "unrecognized arguments: --temprature 1: did you mean --temperature?"),
    ],
)
def test_a_name_that_is_nearly_right_is_guessed(command, flags, words):
    code, _, err = command(["generate", "abc", *flags])
    assert code == 2
    assert words in err


def test_a_setting_that_is_nearly_right_is_guessed_and_no_list_is_cut(engine):
    with pytest.raises(MedusaError, match=r"no setting is called 'temprature': did you mean temperature\?$"):
        generate(engine, "abc", temprature=0.5)
    with pytest.raises(MedusaError) as error:
        generate(engine, "abc", zzz=0.5)
    assert "…" not in str(error.value)
    with pytest.raises(MedusaError, match=r"no setting is called 'modle': did you mean model\?$"):
        load(modle="x")
