"""transformers' forward as CUDA graphs: what it gives as it is, in every family; and why where it cannot."""

from __future__ import annotations

import subprocess
from functools import partial
from types import SimpleNamespace

import pytest
import tiny
import torch
from captures import as_list_of_operations, engine_on, not_captured
from families import CONTEXT, DEEP_TREE, FAMILIES, alone, family_model
from torch.testing import assert_close

from medusa_core.config import GenerationConfig
from medusa_core.llama import choose_forward as choosing
from medusa_core.model import compiled_parts
from medusa_core.model import try_capture as capturing
from medusa_core.model.captured_forward import CapturedForward
from medusa_core.model.features import BEFORE_NORM, LAST_HIDDEN, Features
from medusa_core.model.target import Target
from medusa_core.model.try_capture import capture_model

ON_THE_HOST = {"phimoe, long rotation": "it asks on the host whether a number is 0"}
PAIRS = [(name, kernel) for name, family in FAMILIES.items() for kernel in family.kernels]


def captured(model, capture=as_list_of_operations):
    target = Target(model)
    capture_model(target, capture)
    assert target.choice.captured == isinstance(target.forward, CapturedForward)
    return target


@pytest.mark.sample(12)
@pytest.mark.parametrize(("name", "kernel"), PAIRS)
@torch.inference_mode()
def test_nodes_get_what_transformers_gives_their_branches(name, kernel):
    """Two trees in one graph, deeper than a window, behind rows that the first commit moved."""
    model = family_model(name, kernel)
    target = captured(model)
    if name in ON_THE_HOST:
        assert not target.choice.captured
        assert target.choice.why.endswith(f"; not captured: {ON_THE_HOST[name]}")
        return
    assert target.choice.words().startswith("transformers' forward, captured as CUDA graphs")
    cache, read = target.new_cache(CONTEXT), tiny.random_tokens(11, seed=1)
    target.prefill(read, cache, LAST_HIDDEN)
    for parents, path in ((DEEP_TREE[:9], [0, 2, 4, 6, 8]), (DEEP_TREE[:12], [0, 1])):
        tokens = tiny.random_tokens(len(parents), seed=len(parents))
        logits, hidden = target.verify(tiny.token_tree(parents, tokens), cache, LAST_HIDDEN)
        for node in (0, 2, 5, len(parents) - 1):
            wanted = alone(model, read + [tokens[step] for step in tiny.path_to(parents, node)])
            assert_close(logits[node], wanted[0], atol=1e-4, rtol=1e-4)
            assert_close(hidden[node], wanted[1], atol=1e-4, rtol=1e-4)
        cache.commit(path)
        read += [tokens[node] for node in path]


@pytest.mark.parametrize("name", ["gemma3", "phi"])
def test_the_texts_of_a_batch_share_a_forward(name):
    model = family_model(name)
    engine = engine_on(model, as_list_of_operations)
    prompts, texts = [tiny.random_tokens(length, seed=length) for length in (3, 8, 5)], {}
    config = GenerationConfig.of(tree="cartesian-4x2", max_new_tokens=20, ignore_eos=True)
    for number, step in engine.stream_batch(prompts, config, 2):
        texts[number] = texts.get(number, []) + step.emitted
    for number, prompt in enumerate(prompts):
        assert texts[number] == tiny.transformers_greedy(model, prompt, 20)


@torch.inference_mode()
def test_what_drafters_read_of_a_row_is_captured_too():
    model = family_model("qwen2-moe")
    plain, target = Target(model), captured(model)
    features = Features((0, 1, BEFORE_NORM), all_rows=True, queries=True)
    tree, found = tiny.token_tree([-1, 0, 0, 1], [3, 0, 5, 2]), []
    for one in (plain, target):
        cache = one.new_cache(32)
        read = one.prefill(tiny.random_tokens(6, seed=1), cache, features)
        found.append([*read, *one.verify(tree, cache, features), *one.verify(tree, cache, features)])
    for mine, theirs in zip(*found, strict=True):
        assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


@pytest.fixture
def compiled_runs(monkeypatch):
    """The compiled graphs, once for each run. torch itself runs what it has traced: no compiler is needed."""
    runs = []

    def backend(graph, _):
        return lambda *inputs: runs.append(graph) or graph.forward(*inputs)

    parts = SimpleNamespace(compile=partial(torch.compile, backend=backend))
    monkeypatch.setattr(compiled_parts, "torch", parts)
    return runs


@pytest.mark.sample(3)  # of norms and MLPs that differ
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3", "phi3", "stablelm"])
@torch.inference_mode()
def test_compiled_parts_give_what_they_give_as_they_are(compiled_runs, name):
    model = family_model(name)
    plain, target = Target(model), Target(model)
    wanted = capturing._answers(plain, plain.forward)
    assert not compiled_runs
    capture_model(target, not_captured, compiles=True)
    assert target.choice.compiled
    assert "captured as CUDA graphs, in part compiled" in target.choice.words()
    assert compiled_runs
    for mine, theirs in zip(capturing._answers(target, target.forward), wanted, strict=True):
        assert_close(mine[0], theirs[0], atol=1e-4, rtol=1e-4)
    # Prompts are read as ever. At the second number of rows at the latest code for any number is there.
    cache, before = target.new_cache(CONTEXT), len(compiled_runs)
    target.prefill(tiny.PROMPT, cache, LAST_HIDDEN)
    assert len(compiled_runs) == before
    graphs = []
    for nodes in (9, 17, 33):
        tree = tiny.token_tree([-1, *range(nodes - 1)][:nodes], tiny.random_tokens(nodes, seed=1))
        before = len(compiled_runs)
        target.verify(tree, cache, LAST_HIDDEN)
        assert len(compiled_runs) > before
        graphs.append(set(map(id, compiled_runs)))
    assert graphs[0] == graphs[1] == graphs[2]
    assert not any("forward" in vars(module) for module in model.modules())


def test_a_model_without_such_parts_is_not_called_compiled():
    target = Target(family_model("opt"))
    capture_model(target, as_list_of_operations, compiles=True)
    assert (target.choice.captured, target.choice.compiled) == (True, False)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Failed to find C compiler"),
        AssertionError("a stride of another size"),
        ImportError("cannot import libtriton"),
        subprocess.CalledProcessError(1, "gcc"),
    ],
)
def test_parts_that_cannot_be_compiled_run_as_they_are(monkeypatch, error):
    """Compilers fail in many ways."""

    def fail(*args):
        raise error

    monkeypatch.setattr(compiled_parts, "torch", SimpleNamespace(compile=lambda *args, **options: fail))
    model = family_model("llama")
    target = Target(model)
    capture_model(target, as_list_of_operations, compiles=True)
    assert (target.choice.captured, target.choice.compiled) == (True, False)
    assert "not compiled: " in target.choice.why
    assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_gpu_captures_steps_unless_told_not_to(monkeypatch, name):
    """The device is only called so, as long as the choice is made."""

    def on_the_cpu(target, capture, compiles):
        monkeypatch.undo()
        capture_model(target, capture)

    monkeypatch.setattr(Target, "output_device", torch.device("cuda"))
    monkeypatch.setattr(choosing, "capture_model", on_the_cpu)
    monkeypatch.setattr(choosing, "capture_on_cuda", as_list_of_operations)
    eager, replayed = Target(family_model(name)), Target(family_model(name))
    assert choosing.choose_forward(eager).words() == "transformers' forward (not captured: --no-capture)"
    assert not eager.choice.captured
    assert choosing.choose_forward(replayed, capture=True).captured
    assert isinstance(replayed.forward, CapturedForward)
    assert "captured as CUDA graphs" in replayed.choice.words()


def test_quantised_weights_run_as_they_are(monkeypatch):
    target = Target(family_model("llama"))
    monkeypatch.setattr(target.held.weights, "is_quantized", True, raising=False)
    capture_model(target, as_list_of_operations)
    assert not target.choice.captured
    assert "not captured: its weights are quantised" in target.choice.why


def test_a_model_on_several_devices_runs_as_it_is(monkeypatch):
    target = Target(family_model("llama"))
    elsewhere = torch.nn.Parameter(torch.empty(1, device="meta"))
    monkeypatch.setattr(
        target.held.weights, "parameters", lambda: iter([elsewhere, *target.model.lm_head.parameters()])
    )
    capture_model(target, not_captured)
    assert not target.choice.captured
    assert target.choice.why.endswith("not captured: it is spread over several devices")


def test_a_graph_that_answers_otherwise_is_not_used(monkeypatch):
    """As where a model takes something of the first step for all."""

    def of_the_first_step(work):
        results = work()
        return lambda: results

    target = captured(family_model("llama"), of_the_first_step)
    assert not target.choice.captured
    assert "a captured step's logits are off by" in target.choice.why


def test_memory_that_runs_out_is_told():
    def capture(work):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        captured(family_model("llama"), capture)


def test_the_window_of_a_graph_matters(monkeypatch):
    """Without it the comparison at loading sees another model."""
    visible = CapturedForward._visible

    def without_window(self, *given):
        seen = visible(self, *given)
        return dict.fromkeys(seen, seen["full_attention"])

    monkeypatch.setattr(CapturedForward, "_visible", without_window)
    monkeypatch.setattr(capturing, "_START", tuple(range(3, 20)))
    assert not captured(family_model("gemma3")).choice.captured
