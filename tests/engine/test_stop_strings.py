"""``stop_strings`` of transformers' ``generate`` end Medusa's text where they end plain decoding's."""

from __future__ import annotations

import inspect

import pytest
import tiny
import torch
from custom import IDS, by_medusa, plain
from transformers import GenerationConfig, StoppingCriteriaList

from medusa_core import medusa_generate
from medusa_core.custom_generate.generate import generate as generate_of_a_folder

LENGTH = {"max_new_tokens": 40, "do_sample": False}


@pytest.fixture(scope="module")
def text(model):
    return tiny.tiny_tokenizer().decode(plain(model, **LENGTH)[0, 4:])


@pytest.fixture(params=["a function", "a folder's function"])
def generate(request, model, heads):
    if request.param == "a function":
        return by_medusa(model, heads)

    def call(ids=IDS, **settings):
        mask = {"attention_mask": torch.ones_like(ids), "pad_token_id": 0}
        medusa = {"medusa_heads": heads, "medusa_tree": "cartesian-4x2x2"}
        return generate_of_a_folder(ids, model=model, **mask, **medusa, **settings)

    return call


@pytest.mark.sample(12)
@pytest.mark.parametrize("place", [0, 1, 5, 11, 23])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_stop_string_ends_the_text_where_generate_ends_it(model, generate, text, place, length):
    stop = {"stop_strings": [text[place : place + length], "never"], "tokenizer": tiny.tiny_tokenizer()}
    expected = plain(model, **LENGTH, **stop)
    assert expected.shape[1] < 44
    assert torch.equal(generate(**LENGTH, **stop), expected)


def test_stop_strings_of_the_generation_config_count(model, generate, text):
    config = GenerationConfig(**LENGTH, stop_strings=text[9:11], pad_token_id=0)
    settings = {"generation_config": config, "tokenizer": tiny.tiny_tokenizer()}
    expected = plain(model, **settings)
    assert expected.shape[1] < 44
    assert torch.equal(generate(**settings), expected)


def test_stop_strings_beside_criteria_of_the_callers(model, generate, text):
    settings = {"stop_strings": text[20:22], "tokenizer": tiny.tiny_tokenizer()}
    criteria = StoppingCriteriaList([lambda ids, _scores, **_: ids.shape[1] >= 9])
    short = generate(**LENGTH, **settings, stopping_criteria=criteria)
    assert torch.equal(short, plain(model, **LENGTH, **settings, stopping_criteria=criteria))
    assert short.shape[1] == 9


def test_a_tokenizer_alone_changes_nothing(model, generate):
    assert torch.equal(generate(**LENGTH, tokenizer=tiny.tiny_tokenizer()), plain(model, **LENGTH))


def test_without_a_tokenizer_transformers_says_what_is_missing(generate):
    with pytest.raises(ValueError, match="pass the model's tokenizer"):
        generate(**LENGTH, stop_strings="ab")


def test_the_signature_is_the_functions_own():
    parameters = inspect.signature(medusa_generate).parameters
    assert list(parameters)[:5] == [
        "model", "input_ids", "logits_processor", "stopping_criteria", "generation_config",
    ]  # fmt: skip
    assert {"tokenizer", "medusa_heads", "model_kwargs"} <= set(parameters)
