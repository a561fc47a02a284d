"""``stop_strings`` and the penalty inside transformers' ``generate``: Medusa's text is plain decoding's."""

from __future__ import annotations

import inspect

import pytest
import tiny
import torch
from custom import IDS, by_medusa, plain
from transformers import GenerationConfig as TransformersConfig
from transformers import LogitsProcessorList, StoppingCriteriaList

from medusa_core import MedusaError, medusa_generate
from medusa_core.config import GenerationConfig
from medusa_core.custom_generate.generate import generate as generate_of_a_folder
from medusa_core.custom_generate.rules import PenaltyProcessor

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
    config = TransformersConfig(**LENGTH, stop_strings=text[9:11], pad_token_id=0)
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


# --- The contextual penalty: what our own loop gives with it.

PENALTY = {"medusa_penalty": 1.4, "medusa_penalty_window": 6}


@pytest.fixture
def by_function(model, heads):
    return by_medusa(model, heads)


def test_greedy_output_is_plain_decodings_with_the_penalty(engine, by_function):
    found = by_function(do_sample=False, max_new_tokens=30, **PENALTY)[0].tolist()
    prompt, text = found[:-30], found[-30:]
    config = GenerationConfig.of(method="none", max_new_tokens=30, penalty=1.4, penalty_window=6)
    assert text == tiny.emitted(engine.stream(prompt, config))


def test_a_seed_samples_what_transformers_samples_with_such_a_processor(model, by_function):
    """Before min-p, which must see what the penalty has made of the logits."""
    settings = {"do_sample": True, "temperature": 0.9, "min_p": 0.1, "max_new_tokens": 30}
    torch.manual_seed(4)
    own = PenaltyProcessor(1.4, 6)
    expected = plain(model, **settings, logits_processor=LogitsProcessorList([own]))
    torch.manual_seed(4)
    assert torch.equal(by_function(**settings, **PENALTY), expected)


def test_typical_acceptance_takes_it(by_function):
    torch.manual_seed(0)
    settings = {"do_sample": True, "temperature": 0.9, "medusa_acceptance": "typical", "max_new_tokens": 30}
    assert not torch.equal(by_function(**settings, **PENALTY), by_function(**settings))


@pytest.mark.parametrize("wrong", [{"medusa_penalty": 0.5}, {"medusa_penalty_window": -1}], ids=str)
def test_values_out_of_range_are_refused(by_function, wrong):
    with pytest.raises(MedusaError, match="penalty"):
        by_function(max_new_tokens=4, **wrong)
