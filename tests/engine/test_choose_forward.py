"""Where the forward in C is taken, what it leaves of the model, and what is said where it is not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tiny
import torch
from families import FAMILIES, family_model

from medusa_core.errors import MedusaError
from medusa_core.llama import choose_forward as choosing
from medusa_core.llama.choose_forward import choose_forward
from medusa_core.llama.families import FAMILIES as IN_C
from medusa_core.llama.forward import LlamaForward
from medusa_core.llama.library import Library, NoLibraryError
from medusa_core.loading.devices import native_library
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.target import Target
from medusa_core.model.transformers_forward import TransformersForward


def llama(**changes):
    return tiny.build_model(tiny.tiny_config(2, **changes))


def chosen(model, library):
    target = Target(model)
    return target, choose_forward(target, library=library)


@pytest.mark.sample(30)
@pytest.mark.parametrize("name", FAMILIES)
def test_it_is_taken_for_its_families_alone(name, library):
    target, choice = chosen(family_model(name), library)
    wanted = FAMILIES[name].model_type in IN_C
    assert (choice.native, isinstance(target.forward, LlamaForward)) == (wanted, wanted), choice.why
    assert target.choice is choice
    if not wanted:
        assert choice.words().startswith("transformers' forward (not in C: ")
        assert choice.why.endswith(" has layers of its own")


class OtherLinear(torch.nn.Linear):
    """As adapters and quantised layers are: no plain product."""


def hooked(model):
    model.model.layers[1].mlp.register_forward_hook(lambda *_: None)


def adapted(model):
    layer = model.model.layers[0].self_attn
    layer.q_proj.__class__ = OtherLinear


def spread(model):
    model.model.layers[0]._hf_hook = SimpleNamespace()


def of_two_dtypes(model):
    model.model.layers[0].mlp.half()


def in_half(model):
    model.half()


def quantized(model):
    model.is_quantized = True


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (hooked, "model.layers.1.mlp has a hook"),
        (adapted, "model.layers.0.self_attn.q_proj is OtherLinear"),
        (spread, "model.layers.0 has a hook"),
        (of_two_dtypes, "its weights have 2 dtypes"),
        (in_half, "its weights are in float16"),
        (quantized, "its weights are quantized"),
    ],
)
def test_a_model_that_is_more_than_its_weights_keeps_transformers_forward(change, why, library):
    model = llama()
    change(model)
    before = {name: tensor.data_ptr() for name, tensor in model.named_parameters()}
    target, choice = chosen(model, library)
    assert (choice.native, choice.why) == (False, f"not in C: {why}")
    assert isinstance(target.forward, TransformersForward)
    assert before == {name: tensor.data_ptr() for name, tensor in model.named_parameters()}


def test_a_forward_that_disagrees_is_not_taken(monkeypatch, library):
    """A family whose layers changed in a later transformers would be seen when it loads."""
    model, real = llama(), choosing.read_weights

    def without_rotation(*given, **how):
        weights = real(*given, **how)
        weights.head.numbers.neg_()
        return weights

    monkeypatch.setattr(choosing, "read_weights", without_rotation)
    target, choice = chosen(model, library)
    assert not choice.native
    assert isinstance(target.forward, TransformersForward)
    assert choice.why.startswith("not in C: its logits are off by ")


def test_a_forward_that_fails_is_not_taken(monkeypatch, library):
    def fails(*_):
        raise RuntimeError("out of order")

    monkeypatch.setattr(LlamaForward, "__call__", fails)
    target, choice = chosen(llama(), library)
    assert not choice.native
    assert isinstance(target.forward, TransformersForward)
    assert choice.words() == "transformers' forward (the one in C fails: out of order)"


def test_where_there_is_no_library_the_choice_says_why():
    _, choice = chosen(llama(), NoLibraryError("it needs Linux or macOS"))
    assert choice.words() == "transformers' forward (not in C: it needs Linux or macOS)"
    assert not choice.exact


@pytest.mark.parametrize("library_is_there", [True, False])
def test_an_engine_says_which_forward_it_runs(engine_folder, monkeypatch, library_is_there):
    """Greedy Medusa gives plain decoding's tokens by both."""
    if not library_is_there:
        missing = NoLibraryError("no compiler")
        monkeypatch.setattr("medusa_core.loading.load.native_library", lambda: missing)
    engine = tiny.load_from(engine_folder)
    in_c = library_is_there and isinstance(native_library(), Library)
    words = "forward in C, exact" if in_c else "transformers' forward (not in C: "
    assert engine.info.forward == engine.target.choice.words()
    assert engine.info.forward.startswith(words)
    runs = [tiny.run(engine, method=method, max_new_tokens=30) for method in ("none", "medusa")]
    assert tiny.emitted(runs[0]) == tiny.emitted(runs[1])


def test_a_cache_of_another_forward_is_refused(library):
    target, _ = chosen(llama(), library)
    with pytest.raises(MedusaError, match="of another forward: make one with new_cache"):
        target.prefill([1, 2], TreeCache(2, 8))
