"""``python -m tools.make_model``: bad sizes, a folder in use."""

from __future__ import annotations

from dataclasses import fields

import pytest

from medusa_core.training.folder_lock import locked_folder
from tools.make_model.__main__ import main
from tools.make_model.settings import PretrainConfig

SIZES = {
    "heads that do not share the width": ({"hidden_size": 50}, "50, no multiple of attention_heads 3"),
    "heads that do not share keys": ({"kv_heads": 2}, "attention_heads is 3, no multiple of kv_heads 2"),
    "odd parts": ({"attention_heads": 16, "hidden_size": 16, "kv_heads": 1}, "in odd parts"),
    "a batch without a window": ({"batch_tokens": 32}, "a step of 32 tokens holds no window of 128"),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_fit_no_model_are_refused(corpus, capsys, name):
    changes, cause = SIZES[name]
    folders = {"out": corpus / "base", "recipe": corpus / "recipe.json", "data_root": corpus}
    sizes = {
        "tokens": 512, "vocab_size": 300, "hidden_size": 48, "intermediate_size": 96, "layers": 1,
        "attention_heads": 3, "kv_heads": 1, "context": 128, "sequence_length": 64, "batch_tokens": 512,
    }  # fmt: skip
    settings = folders | sizes | changes
    assert {item.name for item in fields(PretrainConfig)} >= settings.keys()
    flags = [part for key, value in settings.items() for part in (f"--{key.replace('_', '-')}", value)]
    assert main([str(flag) for flag in flags]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert cause in err


def test_a_folder_in_which_another_process_trains_is_refused(tmp_path, capsys):
    with locked_folder(tmp_path / "run"):
        assert main(["--out", str(tmp_path / "run")]) == 2
    assert "another process" in capsys.readouterr().err
