"""transformers' own ``generate`` with our loop: same text, same settings, same streams."""

from __future__ import annotations

import json

import pytest
import tiny
import torch
from custom import by_medusa, plain
from transformers import (
    AutoModelForCausalLM,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
    TextIteratorStreamer,
    TextStreamer,
)

from medusa_core import MedusaError, load_medusa_heads, medusa_generate
from medusa_core.checkpoints.names import HEADS_FOLDER
from medusa_core.trees.tree import Topology


@pytest.fixture
def generate(model, heads):
    return by_medusa(model, heads)


@pytest.mark.parametrize("length", [{"max_new_tokens": 1}, {"max_new_tokens": 40}, {"max_length": 30}])
def test_greedy_output_is_that_of_generate(model, generate, length):
    assert torch.equal(generate(do_sample=False, **length), plain(model, do_sample=False, **length))


def test_it_takes_fewer_steps_than_tokens(generate):
    output = generate(max_new_tokens=40, do_sample=False, return_dict_in_generate=True)
    assert output.sequences.shape == (1, 44)
    assert output.medusa_steps < 40


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.7},
        {"temperature": 1.3, "top_k": 5},
        {"top_p": 0.8, "top_k": 0},
        {"repetition_penalty": 1.4, "min_p": 0.02},
        {"no_repeat_ngram_size": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_a_seed_samples_the_text_of_generate(model, generate, settings, seed):
    """One draw a node along the path, in plain decoding's order, of the same processed distribution."""
    torch.manual_seed(seed)
    expected = plain(model, max_new_tokens=40, do_sample=True, **settings)
    torch.manual_seed(seed)
    assert torch.equal(generate(max_new_tokens=40, do_sample=True, **settings), expected)


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 1.5},
        {"no_repeat_ngram_size": 3},
        {"bad_words_ids": [[3], [5, 6]]},
        {"suppress_tokens": [0, 1]},
        {"eos_token_id": 7, "min_new_tokens": 12},
        {"sequence_bias": [[[4], 3.0]]},
        {"forced_eos_token_id": 9},
        {"exponential_decay_length_penalty": (4, 1.2), "eos_token_id": 0},
        {"guidance_scale": 1.5},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_greedy_processors_see_each_nodes_own_prefix(model, generate, settings):
    expected = plain(model, max_new_tokens=30, do_sample=False, **settings)
    assert torch.equal(generate(max_new_tokens=30, do_sample=False, **settings), expected)


class Alternating(LogitsProcessor):
    """Remembers: every other call forbids the even tokens."""

    def __init__(self):
        self.prefixes = []

    def __call__(self, input_ids, scores):
        self.prefixes.append(input_ids[0].tolist())
        if len(self.prefixes) % 2:
            scores[:, ::2] = -torch.inf
        return scores


def test_a_processor_that_remembers_sees_the_calls_of_plain_decoding(model, generate):
    own, ours = Alternating(), Alternating()
    expected = plain(model, max_new_tokens=24, do_sample=False, logits_processor=LogitsProcessorList([own]))
    text = generate(max_new_tokens=24, do_sample=False, logits_processor=LogitsProcessorList([ours]))
    assert torch.equal(text, expected)
    assert ours.prefixes[: len(own.prefixes)] == own.prefixes


@pytest.mark.parametrize("end", range(0, tiny.VOCABULARY, 3))
def test_end_tokens_stop_where_generate_stops(model, generate, end):
    settings = {"max_new_tokens": 40, "do_sample": False, "eos_token_id": [end, (end + 5) % tiny.VOCABULARY]}
    assert torch.equal(generate(**settings), plain(model, **settings))


class AfterPair(StoppingCriteria):
    """Stops when two tokens in a row are the same."""

    def __call__(self, input_ids, scores, **kwargs):
        return input_ids[:, -1] == input_ids[:, -2]


def test_stopping_criteria_are_asked_after_each_token(model, generate):
    ends = set()
    for first in range(tiny.VOCABULARY):
        ids = torch.tensor([[first, 2, 0, 3]])
        settings = {
            "max_new_tokens": 30,
            "do_sample": False,
            "stopping_criteria": StoppingCriteriaList([AfterPair()]),
        }
        expected = plain(model, ids, **settings)
        assert torch.equal(generate(ids, **settings), expected)
        ends.add(expected.shape[1])
    assert len(ends) > 1


@pytest.mark.parametrize("skip_prompt", [False, True])
def test_a_text_streamer_prints_what_generate_prints(model, generate, capsys, skip_prompt):
    settings = {"max_new_tokens": 20, "do_sample": False}
    printed = []
    for call in (lambda **kw: plain(model, **kw), generate):
        call(streamer=TextStreamer(tiny.tiny_tokenizer(), skip_prompt=skip_prompt), **settings)
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != ""
    assert printed[1].endswith("\n")


def test_tokens_are_streamed_as_they_are_committed(model, generate):
    """The streamer is given tokens while the loop runs: each after the forward that committed it."""
    log = []

    class Recorder:
        def put(self, value):
            log.append(("put", value.numel()))

        def end(self):
            log.append(("end", 0))

    hook = model.register_forward_hook(lambda *_: log.append(("forward", 0)))
    try:
        generate(max_new_tokens=12, do_sample=False, streamer=Recorder())
    finally:
        hook.remove()
    kinds = [kind for kind, _ in log]
    assert log[0] == ("put", 4)  # the prompt, by transformers
    assert kinds[1:3] == ["forward", "forward"]  # prompt and first tree
    assert kinds[-1] == "end"
    assert kinds.count("put") == 1 + 12
    assert kinds.index("put", 1) < max(i for i, kind in enumerate(kinds) if kind == "forward")


def test_an_iterator_streamer_ends_when_the_loop_refuses(model, generate):
    """A reader in another thread must not wait for ever."""
    streamer = TextIteratorStreamer(tiny.tiny_tokenizer(), timeout=5)
    with pytest.raises(MedusaError, match="medusa_acceptance"):
        generate(max_new_tokens=4, streamer=streamer, medusa_acceptance="hope")
    assert "".join(streamer) == "bcad"


def test_typical_acceptance_keeps_paths_longer(model, generate):
    steps = {}
    for acceptance in ("match", "typical"):
        torch.manual_seed(0)
        output = generate(
            max_new_tokens=80, do_sample=True, top_k=0, medusa_acceptance=acceptance, medusa_epsilon=0.02,
            medusa_delta=0.02, return_dict_in_generate=True,
        )  # fmt: skip
        steps[acceptance] = output.medusa_steps
    assert steps["typical"] < steps["match"]


def test_typical_acceptance_judges_processed_logits(generate):
    banned = [0, 1, 2, 3, 4, 5]
    text = generate(
        max_new_tokens=40, do_sample=True, medusa_acceptance="typical", medusa_epsilon=0.01,
        suppress_tokens=banned,
    )  # fmt: skip
    assert not set(text[0, 4:].tolist()) & set(banned)


def test_heads_come_from_a_folder_an_attribute_or_the_models_own_folder(model, heads, engine_folder):
    settings = {"custom_generate": medusa_generate, "max_new_tokens": 24, "do_sample": False}
    expected = plain(model, max_new_tokens=24, do_sample=False)
    folder = engine_folder / HEADS_FOLDER
    loaded = load_medusa_heads(model, folder)
    assert loaded.default_tree == Topology.from_choices(json.loads((folder / "tree.json").read_text()))
    for given in (str(folder), folder, engine_folder, loaded, heads):
        assert torch.equal(plain(model, medusa_heads=given, **settings), expected)
    own = AutoModelForCausalLM.from_pretrained(engine_folder)
    assert torch.equal(plain(own, **settings), expected)
    other = AutoModelForCausalLM.from_pretrained(engine_folder)
    other.config._name_or_path = other.name_or_path = ""
    with pytest.raises(MedusaError, match="needs heads"):
        plain(other, **settings)
    other.medusa_heads = heads
    assert torch.equal(plain(other, **settings), expected)


@pytest.mark.parametrize(
    "tree",
    ["mc_sim_7b_63", [[0], [1], [0, 0]], Topology(((0,),)), "dynamic-9"],
    ids=["name", "list", "topology", "dynamic"],
)
def test_a_tree_has_many_forms(model, tree):
    four = tiny.random_heads(model, 4)
    settings = {"max_new_tokens": 16, "do_sample": False}
    medusa = {"custom_generate": medusa_generate, "medusa_heads": four, "medusa_tree": tree}
    assert torch.equal(plain(model, **settings, **medusa), plain(model, **settings))


def test_the_models_mode_is_left_as_it_was(model, generate):
    model.train()
    try:
        generate(max_new_tokens=3, do_sample=False)
        assert model.training
    finally:
        model.eval()


def test_a_full_context_ends_the_text_with_a_warning(model, generate, caplog):
    text = generate(max_new_tokens=500, do_sample=False)
    assert text.shape[1] == model.config.max_position_embeddings
    assert "the text ends after 92 tokens: the context holds 96" in caplog.text
