"""transformers' own ``generate`` with our loop: same text, same settings, and words for what it cannot do."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import tiny
import torch
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
    TextIteratorStreamer,
    TextStreamer,
)

from medusa_core import MedusaError, checkpoints, load_medusa_heads, medusa_generate
from medusa_core.cli import main
from medusa_core.hub_export import export_custom_generate
from medusa_core.hub_generate import HeadsWithTree
from medusa_core.tree import Topology

IDS = torch.tensor([tiny.PROMPT])
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def heads(model):
    return tiny.fitted_heads(model)


@pytest.fixture
def generate(model, heads):
    """``model.generate`` by Medusa on a small tree."""

    def call(ids=IDS, **settings):
        settings = {"medusa_heads": heads, "medusa_tree": "cartesian-4x2x2"} | settings
        return plain(model, ids, custom_generate=medusa_generate, **settings)

    return call


def plain(model, ids=IDS, **settings):
    """Token 0 is a real token here, so nothing may be taken for padding."""
    mask = {} if ids is None else {"attention_mask": torch.ones_like(ids)}
    return model.generate(ids, **{"pad_token_id": 0, **mask, **settings})


@pytest.mark.parametrize("length", [{"max_new_tokens": 1}, {"max_new_tokens": 40}, {"max_length": 30}])
def test_greedy_output_is_that_of_generate(model, generate, length):
    assert torch.equal(generate(do_sample=False, **length), plain(model, do_sample=False, **length))


def test_it_takes_fewer_steps_than_tokens(generate):
    output = generate(max_new_tokens=40, do_sample=False, return_dict_in_generate=True)
    assert output.sequences.shape == (1, 44)
    assert output.medusa_steps < 40


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
    settings = {
        "custom_generate": medusa_generate,
        "max_new_tokens": 24,
        "do_sample": False,
    }
    expected = plain(model, max_new_tokens=24, do_sample=False)
    folder = engine_folder / checkpoints.HEADS_FOLDER
    loaded = load_medusa_heads(model, folder)
    assert isinstance(loaded, HeadsWithTree)
    assert loaded.tree == Topology.from_choices(json.loads((folder / "tree.json").read_text()))
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
    "tree", ["mc_sim_7b_63", [[0], [1], [0, 0]], Topology(((0,),))], ids=["name", "list", "topology"]
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
    assert "the context of 96 is full" in caplog.text


def used_cache(model):
    cache = DynamicCache()
    model(torch.tensor([[1, 2]]), past_key_values=cache)
    return cache


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ids": IDS.repeat(2, 1)}, "one prompt at a time, here are 2"),
        ({"num_beams": 2}, "beam search"),
        ({"num_return_sequences": 2, "do_sample": True}, "num_return_sequences is 2"),
        ({"prompt_lookup_num_tokens": 2}, "assisted generation"),
        ({"use_cache": False}, "key-value cache"),
        ({"cache_implementation": "offloaded"}, "cache of its own"),
        ({"return_dict_in_generate": True, "output_scores": True}, "output_scores"),
        ({"return_dict_in_generate": True, "output_hidden_states": True}, "output_hidden_states"),
        ({"attention_mask": torch.tensor([[0, 1, 1, 1]])}, "hides 1 of the prompt's 4 tokens"),
        ({"position_ids": torch.tensor([[3, 4, 5, 6]])}, "position_ids"),
        ({"inputs_embeds": torch.zeros(1, 4, 32), "ids": None}, "inputs_embeds|prompt"),
        ({"medusa_acceptance": "hope"}, "medusa_acceptance is 'hope'"),
        ({"medusa_heads": 3}, "needs heads"),
        ({"medusa_heads": "./nowhere"}, "no folder"),
        ({"medusa_tree": "oak"}, "no tree is called 'oak'"),
        ({"medusa_acceptance": "typical", "do_sample": True, "medusa_epsilon": 7.0}, "epsilon is 7"),
        (
            {
                "medusa_acceptance": "typical",
                "do_sample": True,
                "logits_processor": LogitsProcessorList([Alternating()]),
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
    with pytest.raises(MedusaError, match="past_key_values"):
        generate(max_new_tokens=4, past_key_values=used_cache(model))


def test_an_assistant_is_refused(model, generate):
    with pytest.raises(MedusaError, match="no assistant"):
        generate(max_new_tokens=4, assistant_model=tiny.build_model(tiny.tiny_config()))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "medusa-loop"
    export_custom_generate(folder)
    return folder


def test_the_exported_code_stands_alone(exported):
    """Every import goes to a file beside it or to a library, and transformers finds every file by itself."""
    from transformers.dynamic_module_utils import get_relative_import_files

    code = exported / "custom_generate"
    for file in code.glob("*.py"):
        assert not re.search(r"^\s*(from|import) medusa_core", file.read_text(encoding="utf-8"), re.MULTILINE)
    found = {Path(file).name for file in get_relative_import_files(code / "generate.py")}
    assert found | {"generate.py"} == {file.name for file in code.glob("*.py")}
    assert (code / "requirements.txt").is_file()
    assert "custom_generate" in (exported / "README.md").read_text(encoding="utf-8")


SCRIPT = """
    import sys, torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer
    folder, code, heads = sys.argv[1:]
    assert not any(name.startswith("medusa_core") for name in sys.modules)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ids = torch.tensor([[1, 2, 0, 3]])
    medusa = {"custom_generate": code, "trust_remote_code": True, "medusa_heads": heads}
    common = {"max_new_tokens": 30, "pad_token_id": 0, "attention_mask": torch.ones_like(ids)}
    plain = model.generate(ids, do_sample=False, **common)
    got = model.generate(ids, do_sample=False, return_dict_in_generate=True, streamer=TextStreamer(tokenizer),
                         medusa_tree="cartesian-4x2x2", **common, **medusa)
    assert torch.equal(got.sequences, plain) and got.medusa_steps < 30
    torch.manual_seed(1)
    drawn = model.generate(input_ids=ids, do_sample=True, top_p=0.9, **common)
    torch.manual_seed(1)
    assert torch.equal(model.generate(input_ids=ids, do_sample=True, top_p=0.9, **common, **medusa), drawn)
    stopped = {"stop_strings": [tokenizer.decode(plain[0, 9:11])], "tokenizer": tokenizer, "do_sample": False}
    short = model.generate(ids, **stopped, **common)
    assert torch.equal(model.generate(ids, **stopped, **common, **medusa), short) and short.shape[1] < 34
    try:
        model.generate(ids, medusa_tree="mc_sim_7b_63", **common, **medusa)
    except ValueError as error:  # the published trees are there; they are for more heads than these
        assert "head" in str(error), error
    else:
        raise SystemExit("the published tree was not used")
    # A repository with weights and custom_generate replaces the model's own generate.
    own = AutoModelForCausalLM.from_pretrained(folder + "-whole", trust_remote_code=True)
    assert torch.equal(own.generate(ids, do_sample=False, **common), plain)
    assert torch.equal(own.generate(inputs=ids, do_sample=False, medusa_heads=heads, **common), plain)
    assert not any(name.startswith("medusa_core") for name in sys.modules)
"""


def test_an_exported_folder_runs_where_the_project_is_not(exported, engine_folder, tmp_path):
    """In a process of its own that cannot see this project, as somebody else's machine would run it."""
    model = tmp_path / "model"
    shutil.copytree(engine_folder, model)
    shutil.copytree(engine_folder, tmp_path / "model-whole")
    shutil.copytree(exported / "custom_generate", tmp_path / "model-whole" / "custom_generate")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), model, exported, model / checkpoints.HEADS_FOLDER],
        cwd=tmp_path,
        env=environment | {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("bcad")


def test_the_folder_asks_for_trust(model, exported):
    with pytest.raises(ValueError, match="trust_remote_code"):
        model.generate(IDS, custom_generate=str(exported), trust_remote_code=False)


def test_the_command_exports_and_overwrites_nothing(tmp_path, capsys):
    folder = tmp_path / "new" / "loop"
    assert main(["export", "custom-generate", str(folder)]) == 0
    assert "custom_generate=" in capsys.readouterr().out
    assert (folder / "custom_generate" / "generate.py").is_file()
    assert main(["export", "custom-generate", str(folder)]) == 2
    assert "is not empty" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["export", "custom-generate", str(tmp_path / "file")]) == 2
