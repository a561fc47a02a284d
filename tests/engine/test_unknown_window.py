"""A sliding window in the config of a model whose class knows none is ignored, as the model ignores it.

transformers builds Llama's masks without it. Its default cache is made from the config alone and drops the
rows before the window all the same, so what ``generate`` is compared with has a cache of all rows, or none.
"""

from __future__ import annotations

import shutil

import pytest
import tiny
import torch
from bad_input import change_json
from custom import by_medusa
from transformers import DynamicCache, MistralConfig

from medusa_core import generate, load
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.model.masks import LayerMasks

PROMPT = [1, 2, 0, 3, 7, 5, 5, 9, 4, 2]
WINDOW = 4  # less than the prompt has
KEYS = {
    "a window": {"sliding_window": WINDOW},
    "a window for some layers": {
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "a window for all layers": {"sliding_window": WINDOW, "layer_types": ["sliding_attention"] * 2},
}


def by_transformers(model, **settings):
    ids = torch.tensor([PROMPT])
    return model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False, pad_token_id=0,
        **settings,
    )[0, len(PROMPT) :].tolist()  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("keys", KEYS)
def test_llama_reads_all_rows_as_transformers_has_it(keys, attention):
    model = tiny.build_model(tiny.tiny_config(2, **KEYS[keys]), attention)
    expected = by_transformers(model, use_cache=False)
    assert by_transformers(model, cache=DynamicCache()) == expected
    assert expected == by_transformers(tiny.build_model(tiny.tiny_config(2), attention), use_cache=False)
    engine = tiny.build_engine(model, tiny.fitted_heads(tiny.build_model(tiny.tiny_config(2))))
    for method in ("medusa", "none"):
        assert tiny.emitted(tiny.run(engine, PROMPT, method=method, max_new_tokens=40)) == expected


def test_a_window_that_nothing_reaches_is_generates_text_with_any_cache():
    model = tiny.build_model(tiny.tiny_config(2, sliding_window=80))
    engine = tiny.build_engine(model, tiny.random_heads(model))
    expected = by_transformers(model)
    assert tiny.emitted(tiny.run(engine, PROMPT, max_new_tokens=40)) == expected


def test_so_it_is_inside_generate_and_from_files(tmp_path, engine_folder):
    folder = shutil.copytree(engine_folder, tmp_path / "model")
    change_json(folder / "config.json", **KEYS["a window"])
    engine = load(str(folder), dtype="float32", device="cpu")
    model = engine.target.model
    assert model.config.sliding_window == WINDOW
    expected = by_transformers(model, use_cache=False)
    assert generate(engine, PROMPT, max_new_tokens=40).token_ids == expected
    ours = by_medusa(model, medusa_draft(engine).heads)(
        torch.tensor([PROMPT]), max_new_tokens=40, do_sample=False
    )
    assert ours[0, len(PROMPT) :].tolist() == expected


class _SetsItsOwn(MistralConfig):
    """As code on the hub does: the setting is made in the constructor, the class does not name it."""

    def __init__(self, needed, **settings):
        super().__init__(**settings)
        self.layer_types = ["linear_attention"]


def test_a_class_that_cannot_be_asked_is_believed():
    config = _SetsItsOwn("x")
    config._attn_implementation = "sdpa"
    with pytest.raises(ValueError, match="linear_attention, whose state cannot hold a tree"):
        LayerMasks.of(config)
