"""llama.cpp beside ours: the same tokens in float32 and the same ends, or the reason why it is left out."""

from __future__ import annotations

import sys

import pytest
import tiny
from families import family_model

from medusa_core.config import GenerationConfig
from medusa_core.errors import MedusaError
from medusa_core.evaluation import llama_cpp_peer
from medusa_core.evaluation.bench import run_bench
from medusa_core.evaluation.llama_cpp_peer import LLAMA_CPP_PEERS, LlamaCppRunner
from medusa_core.evaluation.peers import PeerError

PROMPTS = [[1, 2, 0, 3], [5, 0, 7, 5, 0, 7, 5], [4, 6]]
GREEDY = GenerationConfig(max_new_tokens=24)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("MEDUSA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def installed():
    pytest.importorskip("gguf")
    pytest.importorskip("llama_cpp")


def plain(engine, prompt, config):
    return tiny.emitted(engine.stream(prompt, config.changed(method="none")))


def prepared(engine, config=GREEDY, name="llama-cpp"):
    peer = LlamaCppRunner(engine, name, config)
    peer.prepare(max(PROMPTS, key=len))
    return peer


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "name", ["llama", "llama 3, scaled rotation", "llama, tied, wide heads", "mistral", "qwen2", "qwen3"]
)
def test_a_family_writes_the_tokens_of_plain_decoding(name):
    engine = tiny.build_engine(family_model(name), None)
    peer = prepared(engine)
    for prompt in PROMPTS:
        done = peer(prompt)
        assert done.tokens == plain(engine, prompt, GREEDY)
        assert done.steps == 24
        assert done.seconds > 0


@pytest.mark.usefixtures("installed")
def test_biases_of_attention_and_mlp_count():
    model = tiny.build_model(tiny.tiny_config(kv_heads=2, attention_bias=True, mlp_bias=True))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.normal_()
    engine = tiny.build_engine(model, None)
    assert prepared(engine)(PROMPTS[0]).tokens == plain(engine, PROMPTS[0], GREEDY)


@pytest.mark.usefixtures("installed")
def test_it_ends_where_ours_end():
    """At the end of text unless it is ignored, at a stop string, the budget and the end of the context."""
    model = tiny.frequent_zero_model(kv_heads=2)
    model.generation_config.eos_token_id = 22
    engine = tiny.build_engine(model, None)
    text = engine.decode_text(plain(engine, PROMPTS[0], GREEDY.changed(ignore_eos=True)))
    for changes in ({}, {"ignore_eos": True}, {"stop": (text[3:5],)}, {"max_new_tokens": 5},
                    {"ignore_eos": True, "max_new_tokens": 200}):  # fmt: skip
        config = GREEDY.changed(**changes)
        wanted = plain(engine, PROMPTS[0], config)
        assert prepared(engine, config)(PROMPTS[0]).tokens == wanted, changes
    assert len(wanted) == engine.target.context - len(PROMPTS[0])


@pytest.mark.usefixtures("installed")
def test_a_bench_has_both_kinds_of_weights_and_keeps_their_files(engine, cache):
    methods = ["none", "medusa", *LLAMA_CPP_PEERS]
    record = run_bench(engine, PROMPTS, methods, GREEDY, 1)
    assert list(record["methods"]) == methods
    assert record["methods"]["llama-cpp"]["identical_outputs"] == "3 of 3"
    assert record["methods"]["llama-cpp-q8"]["tokens_per_step"] == 1
    assert record["settings"]["peers"] == {"llama-cpp": {}, "llama-cpp-q8": {"weights": "Q8_0"}}
    assert record["machine"]["llama_cpp_python"]
    kept = {file: file.stat().st_mtime_ns for file in cache.iterdir()}
    assert [file.suffix for file in kept] == [".gguf"] * 2
    run_bench(engine, PROMPTS, ["llama-cpp", "llama-cpp-q8"], GREEDY, 1)
    assert {file: file.stat().st_mtime_ns for file in cache.iterdir()} == kept


@pytest.mark.usefixtures("installed")
def test_a_file_that_was_cut_off_is_named(engine, cache):
    prepared(engine)
    (file,) = cache.iterdir()
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(PeerError, match=f"it cannot read {file}: delete it"):
        prepared(engine)


@pytest.mark.usefixtures("installed")
def test_a_full_disk_leaves_no_file(engine, cache, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gguf.GGUFWriter.write_tensor_data", full)
    with pytest.raises(PeerError, match="No space left on device"):
        prepared(engine)
    assert not list(cache.iterdir())


@pytest.mark.parametrize("package", ["llama_cpp", "gguf"])
def test_where_a_package_is_missing_the_reason_says_how_to_get_it(engine, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    if package == "gguf":
        monkeypatch.setattr(llama_cpp_peer, "_library", lambda: None)  # it may be missing too
    with pytest.raises(
        MedusaError, match=r"^llama-cpp cannot run here \(.* gguf\): name another in --methods"
    ):
        run_bench(engine, PROMPTS, ["llama-cpp"], GREEDY, 1)


@pytest.mark.parametrize("changes", [{"temperature": 0.7}, {"penalty": 1.2}])
def test_a_run_that_it_would_make_otherwise_is_refused(engine, changes):
    with pytest.raises(PeerError, match="it is compared greedily and without a penalty"):
        prepared(engine, GREEDY.changed(**changes))
