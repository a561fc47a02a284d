"""``--quantize 8bit`` on a CPU: packed by the C, exact, close to the plain weights, counted as it is held."""

from __future__ import annotations

import pytest
import tiny
import torch
from head_files import public_state, write
from native_case import run
from torch.nn import functional as F

from medusa_core.api import load
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters.medusa import with_heads
from medusa_core.errors import MedusaError
from medusa_core.evaluation.prompts import HELD_OUT, shipped_kinds
from medusa_core.llama.choose_forward import choose_forward
from medusa_core.llama.library import NoLibraryError
from medusa_core.llama.panels import Panels
from medusa_core.loading.load import load_engine
from medusa_core.loading.memory import estimate_memory
from medusa_core.model.forward import Rows
from medusa_core.model.target import Target

PLAIN = {"dtype": "bfloat16", "device": "cpu"}
IN_8_BITS = PLAIN | {"quantize": "8bit"}


@pytest.fixture(scope="module")
def embedded(library):
    return load(**IN_8_BITS)


@pytest.fixture(scope="module")
def prompts(embedded):
    return [prompts[0] for prompts in shipped_kinds(embedded, HELD_OUT).values()]


def text(engine, prompt, tokens, **settings):
    config = GenerationConfig.of(max_new_tokens=tokens, ignore_eos=True, **settings)
    return tiny.emitted(list(engine.stream(prompt, config)))


def logits(engine, tokens):
    """Of all tokens, by the forward in C."""
    rows = Rows.of_text(tokens, torch.device("cpu"), len(tokens))
    return run(engine.target.forward, rows, engine.target.new_cache(len(tokens)))[0].float()


def test_texts_of_a_batch_are_those_alone(embedded, prompts):
    config, texts = GenerationConfig.of(max_new_tokens=40, ignore_eos=True), [[] for _ in prompts]
    for number, step in embedded.stream_batch(prompts, config, len(prompts)):
        texts[number] += step.emitted
    assert texts == [text(embedded, prompt, 40) for prompt in prompts]


@torch.inference_mode()
def test_8_bits_say_nearly_what_the_plain_weights_say(embedded, prompts):
    whole, agree, losses = load(**PLAIN), [], {"8bit": [], "none": []}
    for prompt in prompts:
        tokens = prompt + text(whole, prompt, 64, method="none", temperature=1.0, seed=1)
        found, wanted = (logits(engine, tokens) for engine in (embedded, whole))
        agree.append(found.argmax(-1) == wanted.argmax(-1))
        for name, one in (("8bit", found), ("none", wanted)):
            losses[name].append(F.cross_entropy(one[:-1], torch.tensor(tokens[1:]), reduction="none"))
    assert torch.cat(agree).float().mean() > 0.97
    assert torch.cat(losses["8bit"]).mean() == pytest.approx(
        float(torch.cat(losses["none"]).mean()), abs=0.01
    )


def test_it_is_said_and_counted_as_it_is_held(embedded):
    assert embedded.info.dtype == "bfloat16, 8-bit"
    assert embedded.info.forward.startswith("forward in C, exact")
    plain = load(**PLAIN)
    parameters, held = plain.info.parameters, embedded.target.weight_bytes
    assert embedded.info.parameters == parameters
    assert parameters < held < 1.02 * parameters
    assert plain.target.weight_bytes > 1.9 * held
    estimate = estimate_memory(LoadConfig(**IN_8_BITS))
    assert estimate.base == pytest.approx(held, rel=0.01)


@torch.inference_mode()
def test_who_asks_for_the_model_gets_the_rounded_one(prompts):
    """transformers' model of these weights, and the LM head that new heads begin with."""
    engine = load(**IN_8_BITS | {"dtype": "float32"})
    own = logits(engine, prompts[0])
    theirs = engine.target.model(torch.tensor([prompts[0]])).logits[0]
    assert (own - theirs).norm() < 2e-3 * theirs.norm()
    head = engine.target.held.lm_head()
    torch.testing.assert_close(Panels.of(head, int8=True).unpacked(), head)


def test_heads_fitted_to_a_packed_model_draft_for_it(library, tmp_path):
    model = tiny.build_model(tiny.tiny_config(2, hidden_size=64, intermediate_size=96))
    model.save_pretrained(tmp_path)
    tiny.tiny_tokenizer().save_pretrained(tmp_path)
    write(tmp_path / "heads", public_state(tiny.random_heads(model)))
    engine = load_engine(LoadConfig(str(tmp_path), **IN_8_BITS | {"dtype": "float32"}))
    fitted = with_heads(engine, heads=tiny.fitted_heads(engine.target.model))
    steps = tiny.run(fitted, tiny.PROMPT, max_new_tokens=32)
    assert len(steps) < 30  # drafts are kept
    assert tiny.emitted(steps) == tiny.transformers_greedy(engine.target.model, tiny.PROMPT, 32)


def test_a_model_that_the_c_does_not_run_is_refused(library):
    for there, why in ((NoLibraryError("no compiler"), "not in C: no compiler"), (None, "leave out")):
        target = Target(tiny.build_model(tiny.tiny_config(2, hidden_act="gelu" if there is None else "silu")))
        with pytest.raises(MedusaError, match=rf"8-bit weights need the forward in C.*{why}"):
            choose_forward(target, library=there or library, int8=True)
