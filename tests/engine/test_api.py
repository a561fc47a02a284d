"""The Python interface: load, decode and generate, as a script would use them."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import chain

import pytest
import tiny
import torch
from bad_answers import CPU

import medusa_core
from medusa_core import MedusaError, decode, generate, load
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.trace.format import RunTrace
from medusa_core.trees.tree import Topology

SMALL = {"tree": "cartesian-4x2x2", "max_new_tokens": 24}


def test_load_reads_a_folder_with_its_heads(engine_folder):
    engine = load(engine_folder, dtype=torch.float32, device=torch.device("cpu"))
    assert medusa_draft(engine).heads.count == tiny.HEADS
    assert (engine.info.dtype, engine.info.device) == ("float32", "cpu")
    bare = load(str(engine_folder), heads="none", dtype="float32")
    assert bare.drafts == {}


def test_decode_yields_the_steps_of_the_engine(engine):
    steps = list(decode(engine, "bcad", **SMALL))
    tokens = list(chain.from_iterable(step.emitted for step in steps))
    assert tokens == tiny.transformers_greedy(engine.target.model, tiny.PROMPT, 24)
    assert len(steps) < 24
    assert steps[-1].finish_reason == "length"


def test_a_prompt_is_text_or_ids(engine):
    by_text = generate(engine, "bcad", **SMALL)
    by_ids = generate(engine, torch.tensor(tiny.PROMPT), **SMALL)
    assert by_text.token_ids == by_ids.token_ids == tiny.emitted(tiny.run(engine, max_new_tokens=24))


def test_generate_sums_the_run_up(engine):
    result = generate(engine, tiny.PROMPT, **SMALL)
    steps = tiny.run(engine, max_new_tokens=24)
    assert result.steps == len(steps)
    assert result.tokens_per_step == 24 / len(steps) > 1
    assert result.decode_tokens_per_second == pytest.approx(24 / result.seconds)
    assert result.text == engine.decode_text(result.token_ids)
    assert result.finish_reason == "length"
    assert result.trace is None


def test_generate_brings_a_trace_when_asked(engine):
    result = generate(engine, tiny.PROMPT, trace=True, **SMALL)
    assert isinstance(result.trace, RunTrace)
    assert result.trace.output.token_ids == result.token_ids
    assert result.trace.output.text == result.text
    assert len(result.trace.steps) == result.steps


def test_a_tree_that_is_given_stands_in_the_trace_by_its_choices(engine):
    choices = [[0], [1], [0, 0]]
    given = SMALL | {"tree": Topology.from_choices(choices)}
    trace = generate(engine, tiny.PROMPT, trace=True, **given).trace
    assert trace.config.drafter.settings["tree"] == "given"
    assert sorted(map(list, trace.config.tree)) == sorted(choices)


def test_a_stop_string_may_be_given_alone(engine):
    whole = generate(engine, tiny.PROMPT, **SMALL).text
    stop = whole[5:8]
    result = generate(engine, tiny.PROMPT, stop=stop, **SMALL)
    assert result.text == whole[: whole.index(stop)]
    assert result.finish_reason == "stop"


def test_sampling_settings_reach_the_run(engine):
    settings = {"temperature": 1.0, "acceptance": "typical", "root": "sample", **SMALL}
    texts = {generate(engine, tiny.PROMPT, seed=seed, **settings).text for seed in range(4)}
    assert len(texts) > 1


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("", "the prompt is empty: write at least one word"),
        ([], "the prompt is empty"),
        (["a"], "token ids"),
        ([1.5, 2], "token ids"),
        ([math.inf], "token ids"),
        (3, "token ids"),
        (b"abc", "the prompt is a bytes: give text, or token ids as a list of whole numbers"),
        ([True, 5], "the prompt is a list: give text, or token ids"),
        (torch.tensor([True]), "token ids"),
        (torch.tensor([[1, 2], [3, 4]]), "token ids"),
        ([10**6], "vocabulary"),
    ],
)
def test_bad_input_says_what_is_wrong(engine, prompt, words):
    with pytest.raises(MedusaError, match=words):
        generate(engine, prompt, tree="cartesian-2x1")


@pytest.mark.sample(1)
@pytest.mark.parametrize("prompt", [" ", "\n", " \t ", "\r\n\r\n"])
def test_white_space_is_a_prompt_here_and_on_the_command_line(command, trained_base, prompt):
    """The page and a chat ask for words."""
    engine = load(str(trained_base), dtype="float32", device="cpu")  # with tokens for white space
    found = generate(engine, prompt, method="none", max_new_tokens=4, trace=True)
    assert found.trace.prompt.token_ids == engine.tokenize(prompt)
    assert len(found.token_ids) == 4
    assert next(decode(engine, prompt, method="none")).emitted
    flags = ["--model", trained_base, "--method", "none", "--max-new-tokens", 4, *CPU]
    code, out, _ = command(["generate", prompt, *flags])
    assert (code, bool(out)) == (0, True)


def test_settings_and_text_are_judged_before_the_first_step(engine):
    for arguments, settings in ((("",), {}), (("abc",), {"nothing": 1})):
        with pytest.raises(MedusaError):
            decode(engine, *arguments, **settings)


WRONG = [
    ({"max_new_tokens": "a"}, r"max_new_tokens is 'a' \(str\): give a whole number"),
    ({"max_new_tokens": 2.5}, r"max_new_tokens is 2.5 \(float\): give a whole number"),
    ({"max_new_tokens": True}, r"max_new_tokens is True \(bool\): give a whole number"),
    ({"temperature": "hot"}, r"temperature is 'hot' \(str\): give a number"),
    ({"epsilon": None}, r"epsilon is None \(NoneType\): give a number"),
    ({"temperature": math.nan}, r"temperature is nan: give a number from 0.0 to 2.0"),
    ({"temperature": math.inf}, r"temperature is inf, the largest is 2.0"),
    ({"temperature": -0.1}, r"temperature is -0.1, the smallest is 0.0"),
    ({"temperature": 9}, r"temperature is 9, the largest is 2"),
    ({"seed": -4}, r"seed is -4, the smallest is 0"),
    ({"penalty": 0.9}, "penalty is 0.9"),
    ({"penalty": math.nan}, "penalty is nan"),
    ({"penalty_window": -1}, "penalty_window is -1"),
    ({"min_p": 1.1}, "min_p is 1.1"),
    ({"top_k": -1}, "top_k is -1"),
    ({"top_k": 2.5}, "top_k is 2.5"),
    ({"top_p": 0.0}, "top_p is 0.0"),
    ({"top_p": 1.1}, "top_p is 1.1"),
    ({"acceptance": "hope"}, "no acceptance rule 'hope'"),
    ({"epsilom": 0.1}, r"no setting is called 'epsilom': did you mean epsilon\?$"),
    ({"ignore_eos": "no"}, r"ignore_eos is 'no' \(str\): give True or False"),
    ({"stop": 5}, r"stop is 5 \(int\): give a text, or several as a tuple"),
    ({"options": None}, r"options is None \(NoneType\): give a dictionary of settings by name"),
    ({"stop": ("a", 5)}, r"an entry of stop is 5 \(int\): give a text"),
]


@pytest.mark.parametrize(("settings", "words"), WRONG)
def test_a_setting_of_the_wrong_kind_is_named_with_the_right_one(engine, settings, words):
    with pytest.raises(MedusaError, match=words):
        generate(engine, "fade", **settings)


def test_a_whole_number_is_a_number(engine):
    assert generate(engine, "fade", temperature=0, max_new_tokens=2, stop=["zz"]).steps


def test_an_engine_and_a_result_are_shown_in_a_line(engine):
    result = generate(engine, tiny.PROMPT, trace=True, **SMALL)
    for shown in (repr(engine), repr(result)):
        assert len(shown.splitlines()) == 1
        assert len(shown) < 200
    assert engine.info.name in repr(engine)
    assert f"in {result.steps} steps, ended by length" in repr(result)


def test_load_with_a_model_object_names_the_function_that_takes_one(model):
    with pytest.raises(MedusaError, match=r"is a LlamaForCausalLM: .* load_medusa_heads\(model, HEADS\)"):
        load(model)


def test_load_names_an_unknown_option(engine_folder):
    with pytest.raises(MedusaError, match="no setting is called 'dtypes'"):
        load(engine_folder, dtypes="float32")


def test_importing_the_package_loads_no_library():
    code = (
        "import sys, medusa_core; sys.exit(any(m in sys.modules for m in ('torch', 'transformers', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_there():
    for name in medusa_core.__all__:
        assert getattr(medusa_core, name).__name__ == name
    assert set(medusa_core.__all__) <= set(dir(medusa_core))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        medusa_core.nothing  # noqa: B018 - asking is the point
