"""What Medusa inside transformers' ``generate`` cannot honour is refused with words, adapters among it."""

from __future__ import annotations

import re

import pytest
import tiny
import torch
from custom import IDS, by_medusa, plain
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from training_runs import finish, medusa2_config
from transformers import AutoModelForCausalLM, DynamicCache, LogitsProcessor, LogitsProcessorList

from medusa_core import MedusaError, load_medusa_heads, medusa_generate
from medusa_core.checkpoints.adapters import without_deprecations


@pytest.fixture
def generate(model, heads):
    return by_medusa(model, heads)


class Remembers(LogitsProcessor):
    """A processor that may be another one at each call."""

    def __call__(self, input_ids, scores):
        return scores


NEEDS_A_DRIVER = pytest.mark.skipif(
    torch.version.cuda is not None and not torch.cuda.is_available(),
    reason="transformers makes a CUDA stream for this cache wherever torch is built for CUDA",
)


def used_cache(model):
    cache = DynamicCache()
    model(torch.tensor([[1, 2]]), cache=cache)
    return cache


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ids": IDS.repeat(2, 1)}, "one prompt at a time, here are 2"),
        ({"num_beams": 2}, "beam search"),
        ({"num_return_sequences": 2, "do_sample": True}, "num_return_sequences is 2"),
        ({"prompt_lookup_num_tokens": 2}, "assisted generation"),
        ({"use_cache": False}, "key-value cache"),
        pytest.param({"cache_implementation": "offloaded"}, "cache of its own", marks=NEEDS_A_DRIVER),
        ({"return_dict_in_generate": True, "output_scores": True}, "output_scores"),
        ({"return_dict_in_generate": True, "output_hidden_states": True}, "output_hidden_states"),
        ({"attention_mask": torch.tensor([[0, 1, 1, 1]])}, "hides 1 of the prompt's 4 tokens"),
        ({"position_ids": torch.tensor([[3, 4, 5, 6]])}, "position_ids"),
        ({"inputs_embeds": torch.zeros(1, 4, 32), "ids": None}, "inputs_embeds|prompt"),
        ({"medusa_acceptance": "rejection", "do_sample": True}, "use 'match', which samples from the same"),
        ({"medusa_acceptance": "hope"}, "medusa_acceptance is 'hope'"),
        ({"medusa_heads": 3}, "needs heads"),
        ({"medusa_heads": "./nowhere"}, "no folder"),
        ({"medusa_tree": "oak"}, "no tree is called 'oak'"),
        ({"medusa_acceptance": "typical", "do_sample": True, "medusa_epsilon": 7.0}, "epsilon is 7"),
        (
            {
                "medusa_acceptance": "typical",
                "do_sample": True,
                "logits_processor": LogitsProcessorList([Remembers()]),
            },
            "may remember",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused(generate, settings, words):
    with pytest.raises(MedusaError, match=words):
        generate(max_new_tokens=4, **settings)


def test_a_cache_of_the_callers_is_refused(model, generate):
    with pytest.raises(MedusaError, match="leave out cache"):
        generate(max_new_tokens=4, cache=used_cache(model))


def test_an_assistant_is_refused(model, generate):
    with pytest.raises(MedusaError, match="no assistant"):
        generate(max_new_tokens=4, assistant_model=tiny.build_model(tiny.tiny_config()))


@pytest.fixture(scope="module")
def adapted(trained_base, tmp_path_factory):
    """The folder of heads that come with an adapter of the tiny trained base."""
    return finish(medusa2_config(trained_base, tmp_path_factory.mktemp("joint"), head_warmup="none"))


def base_of(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
def test_heads_with_an_adapter_want_it_in_the_model(trained_base, adapted):
    """And then they are the engine that has it merged: the same text in as many steps."""
    engine = tiny.load_from(trained_base, adapted)
    prompt = engine.encode("The cat saw a")
    steps = tiny.run(engine, prompt, max_new_tokens=24, tree="cartesian-2x2x2")
    model = base_of(trained_base)
    settings = {"max_new_tokens": 24, "do_sample": False}
    medusa = {
        "custom_generate": medusa_generate,
        "medusa_heads": str(adapted),
        "medusa_tree": "cartesian-2x2x2",
    }
    ids = torch.tensor([prompt])
    fix = re.escape(
        f"call model.load_adapter({str(adapted)!r}) first, or load base and heads with medusa_core.load"
    )
    with pytest.raises(MedusaError, match=fix):
        plain(model, ids, **settings, **medusa)
    model.load_adapter(str(adapted))
    ours = plain(model, ids, return_dict_in_generate=True, **settings, **medusa)
    assert torch.equal(ours.sequences, plain(model, ids, **settings))
    assert ours.sequences[0, len(prompt) :].tolist() == tiny.emitted(steps)
    assert ours.medusa_steps == len(steps)
    for layer in model.modules():
        if isinstance(layer, BaseTunerLayer):
            layer.enable_adapters(enabled=False)
    with pytest.raises(MedusaError, match="which this model lacks"):
        load_medusa_heads(model, adapted)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
def test_another_adapter_is_not_theirs(trained_base, adapted, tmp_path):
    other = finish(medusa2_config(trained_base, tmp_path, head_warmup="none", tokens=1024))
    model = base_of(trained_base)
    model.load_adapter(str(other))
    with pytest.raises(MedusaError, match="which this model lacks"):
        load_medusa_heads(model, adapted)
    with without_deprecations():
        wrapped = PeftModel.from_pretrained(base_of(trained_base), adapted)
    assert load_medusa_heads(wrapped.get_base_model(), adapted).heads.count == 3
