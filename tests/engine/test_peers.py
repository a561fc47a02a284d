"""transformers' own ways to generate beside ours: same tokens, ends and budget, and peers that cannot run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny
import torch
import torch._inductor.config as inductor
from transformers import GenerationConfig as TransformersConfig

from medusa_core.config import GenerationConfig
from medusa_core.errors import MedusaError
from medusa_core.evaluation import peers
from medusa_core.evaluation.bench import run_bench
from medusa_core.evaluation.llama_cpp_peer import LLAMA_CPP_PEERS
from medusa_core.evaluation.peers import PEERS, PeerError, PeerRunner

PROMPTS = [[1, 2, 0, 3], [5, 0, 7, 5, 0, 7, 5], [4, 6]]
GREEDY = GenerationConfig(max_new_tokens=24)


@pytest.fixture(autouse=True)
def traced_only(monkeypatch):
    """torch.compile traces and guards as ever, and leaves out its last stage, which takes a C++ compiler."""
    monkeypatch.setattr(peers, "COMPILER", "eager")
    yield
    torch.compiler.reset()


@pytest.fixture
def own_model():
    """A model that a test may change."""
    return tiny.frequent_zero_model(kv_heads=2)


def plain(engine, prompt, config):
    return tiny.emitted(engine.stream(prompt, config.changed(method="none")))


def told(model, prompt, **arguments):
    """What transformers writes when it is called as its manual says."""
    ids = torch.tensor([prompt])
    torch.manual_seed(0)
    output = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, pad_token_id=0, **arguments
    )
    return output[0, len(prompt) :].tolist()


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PEERS)
def test_a_greedy_peer_writes_what_generate_and_plain_decoding_write(engine, name):
    peer = PeerRunner(engine, name, GREEDY)
    peer.prepare(max(PROMPTS, key=len))
    for prompt in PROMPTS:
        done = peer(prompt)
        assert done.tokens == tiny.transformers_greedy(engine.target.model, prompt, 24)
        assert done.tokens == plain(engine, prompt, GREEDY)
        assert done.seconds > 0
        assert len(done.tokens) == 24
        if not PEERS[name].drafts:
            assert done.steps == 24


@pytest.mark.parametrize(
    ("name", "arguments"), [("hf", {}), ("hf-lookup", {"prompt_lookup_num_tokens": peers.LOOKUP_TOKENS})]
)
def test_a_peer_samples_as_generate_does(engine, name, arguments):
    peer = PeerRunner(engine, name, GREEDY.changed(temperature=0.8))
    for prompt in PROMPTS:
        drawn = told(engine.target.model, prompt, do_sample=True, temperature=0.8, top_k=0, **arguments)
        assert peer(prompt).tokens == drawn


def test_prompt_lookup_takes_fewer_steps_than_tokens_and_they_are_its_forwards(engine):
    calls = []
    hook = engine.target.model.model.register_forward_hook(lambda *_: calls.append(1))
    try:
        done = PeerRunner(engine, "hf-lookup", GenerationConfig(max_new_tokens=80))(PROMPTS[1])
    finally:
        hook.remove()
    assert done.steps == len(calls) < len(done.tokens) == 80


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", PEERS)
def test_peers_end_where_ours_end(own_model, name):
    """At the model's end of text, not at it when it is ignored, at the budget, and at the context's end."""
    own_model.generation_config.eos_token_id = 22
    engine = tiny.build_engine(own_model, None)
    for changes in (
        {},
        {"ignore_eos": True},
        {"max_new_tokens": 5},
        {"ignore_eos": True, "max_new_tokens": 200},
    ):
        config = GREEDY.changed(**changes)
        wanted = plain(engine, PROMPTS[0], config)
        peer = PeerRunner(engine, name, config)
        assert peer(PROMPTS[0]).tokens == wanted, changes
    assert len(wanted) == engine.target.context - len(PROMPTS[0])
    assert plain(engine, PROMPTS[0], GREEDY)[-1] == 22


@pytest.mark.parametrize("name", ["hf", "hf-lookup"])
def test_peers_end_at_a_stop_string(engine, name):
    text = engine.decode_text(plain(engine, PROMPTS[1], GREEDY))
    config = GREEDY.changed(stop=(text[9:11],))
    tokens = PeerRunner(engine, name, config)(PROMPTS[1]).tokens
    assert tokens == plain(engine, PROMPTS[1], config)
    assert len(tokens) < 24


@pytest.mark.parametrize("name", PEERS)
def test_what_the_models_generation_config_asks_for_is_left_out(own_model, name):
    """Ours knows no penalty, so a peer that had one would be compared with another text."""
    engine = tiny.build_engine(own_model, None)
    wanted = plain(engine, PROMPTS[0], GREEDY)
    own_model.generation_config = asked = TransformersConfig(repetition_penalty=5.0, no_repeat_ngram_size=2)
    before = set(vars(own_model))
    assert told(own_model, PROMPTS[0], do_sample=False) != wanted
    assert PeerRunner(engine, name, GREEDY)(PROMPTS[0]).tokens == wanted
    assert own_model.generation_config is asked
    assert set(vars(own_model)) == before, "a peer leaves nothing on the model"


def test_the_compiled_step_is_compiled_once_for_all_prompts(engine):
    peer = PeerRunner(engine, "hf-static", GREEDY)
    peer.prepare(max(PROMPTS, key=len))
    with torch.compiler.set_stance("fail_on_recompile"):
        for prompt in PROMPTS:
            assert peer(prompt).tokens == plain(engine, prompt, GREEDY)


def test_the_compiler_has_run_before_the_first_measured_step_even_if_the_text_ends_at_once(own_model):
    first = tiny.transformers_greedy(own_model, PROMPTS[1], 1)[0]
    own_model.generation_config.eos_token_id = first
    peer = PeerRunner(tiny.build_engine(own_model, None), "hf-static", GREEDY)
    peer.prepare(PROMPTS[1])
    with torch.compiler.set_stance("fail_on_recompile"):
        assert peer(PROMPTS[1]).tokens == [first]
        assert len(peer(PROMPTS[0]).tokens) > 1


@pytest.mark.slow
def test_without_a_compiler_the_row_is_left_out_and_the_others_are_measured(engine, monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "COMPILER", "inductor")
    monkeypatch.setattr(inductor.cpp, "cxx", (None, str(tmp_path / "no-compiler")))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    record = run_bench(engine, PROMPTS[:1], ["none", "hf-static", "hf"], GREEDY, 1)
    assert set(record["methods"]) == {"none", "hf"}
    assert set(record["left_out"]) == {"hf-static"}
    assert "No working C++ compiler found" in record["left_out"]["hf-static"]
    assert "\n" not in record["left_out"]["hf-static"]


def test_a_model_that_generate_does_not_compile_is_left_out(engine, monkeypatch):
    """transformers would measure a static cache without a compiler under the compiled one's name."""
    model = type(engine.target.model)
    monkeypatch.setattr(model, "_valid_auto_compile_criteria", lambda *_: False)
    with pytest.raises(PeerError, match="does not compile"):
        PeerRunner(engine, "hf-static", GREEDY).prepare(PROMPTS[0])


def test_where_nothing_can_run_the_reason_is_the_error(engine, monkeypatch):
    def broken(*_, **__):
        raise NotImplementedError("no cache of this kind\n\nSee the manual.")

    monkeypatch.setattr(type(engine.target.model), "generate", broken)
    with pytest.raises(MedusaError, match=r"^hf cannot run here \(no cache of this kind\): name another"):
        run_bench(engine, PROMPTS, ["hf", "hf-lookup"], GREEDY, 1)


def test_a_peer_that_fails_later_is_named(engine, monkeypatch):
    model = type(engine.target.model)
    generate = model.generate

    def short_only(self, ids, **arguments):
        if ids.shape[1] < 3:
            raise IndexError("index out of range in self")
        return generate(self, ids, **arguments)

    monkeypatch.setattr(model, "generate", short_only)
    with pytest.raises(MedusaError, match=r"^hf failed after a prompt of 2 tokens \(index out of range"):
        run_bench(engine, PROMPTS, ["hf"], GREEDY, 1)


@pytest.mark.sample
@pytest.mark.parametrize(
    ("prompt", "words"),
    [([], "the prompt is empty"), ([1] * 96, "the context holds 96"), ([24], "the vocabulary from 0 to 23")],
)
@pytest.mark.parametrize("name", [*PEERS, *LLAMA_CPP_PEERS])
def test_a_bad_prompt_is_no_fault_of_the_peer(engine, name, prompt, words):
    with pytest.raises(MedusaError, match=words) as raised:
        run_bench(engine, [prompt], [name], GREEDY, 1)
    assert not isinstance(raised.value, PeerError)


def test_the_record_has_both_speedups_and_what_the_peers_were_told(engine):
    methods = ["none", "medusa", "ngram", "hf", "hf-lookup"]
    record = run_bench(engine, PROMPTS, methods, GREEDY, 2)
    assert list(record["methods"]) == methods
    for name, figures in record["methods"].items():
        assert figures["identical_outputs"] == "3 of 3"
        for key in ("speedup", "speedup_over_hf", "tokens_per_second"):
            low, high = figures[f"{key}_range"]
            assert 0 < low <= figures[key] <= high
        assert ("phase_ms" in figures) == ("overhead" in figures) == (name not in PEERS)
    assert record["methods"]["none"]["speedup"] == record["methods"]["hf"]["speedup_over_hf"] == 1
    assert record["methods"]["hf-lookup"]["tokens_per_step"] > record["methods"]["hf"]["tokens_per_step"] == 1
    assert record["settings"]["peers"] == {"hf": {}, "hf-lookup": {"prompt_lookup_num_tokens": 10}}
    assert record["left_out"] == {}
    alone = run_bench(replace(engine, drafts={}), PROMPTS[:1], ["ngram"], GREEDY, 1)["methods"]["ngram"]
    assert not {"speedup", "speedup_over_hf", "identical_outputs", "overhead"} & set(alone)
