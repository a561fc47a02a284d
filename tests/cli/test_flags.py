"""Flags: odd values, those that count for nothing, the penalty's, and ``--method auto``."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import fields

import pytest
import tiny
import torch

from medusa_core import MedusaError, generate, load
from medusa_core.acceptance import rule_names
from medusa_core.cli.main import build_parser
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters import drafter_names, merged_in_words
from medusa_core.drafters._options import idle_options, option_kinds
from medusa_core.evaluation.peers import PeerError, PeerRunner
from medusa_core.loading import load as loading
from medusa_core.trace.format import read_trace


def leaves(parser, path=()):
    """The parsers that have a command's flags, with the words that lead there."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield path, parser
    for group in groups:
        for name, child in group.choices.items():
            yield from leaves(child, (*path, name))


def test_two_dashes_are_a_value_or_are_refused_in_one_line(capsys):
    parser, tried = build_parser(), 0
    for path, leaf in leaves(parser):
        for action in leaf._actions:
            needed = [other for other in leaf._actions if other.required]
            for group in leaf._mutually_exclusive_groups:
                if group.required and action not in group._group_actions:
                    needed.append(group._group_actions[0])
            required = [part for other in needed for part in given(other)]
            for flag in action.option_strings:
                tried += 1
                try:
                    found = getattr(parser.parse_args([*path, *required, f"{flag}=--"]), action.dest)
                except SystemExit:
                    error = capsys.readouterr().err
                    assert error.count("\n") == 1, (path, flag)
                    assert "error: argument" in error, (path, flag)
                else:
                    assert found in ("--", ["--"]), (path, flag)
    assert tried > 500


def given(action):
    """A positional argument or a flag with a value that fits."""
    value = next(iter(action.choices)) if action.choices else "1"
    if action.nargs == 0:
        return [action.option_strings[0]]
    return [action.option_strings[0], value] if action.option_strings else [value]


@pytest.mark.parametrize("flag", ["--stop", "--model", "--max-new-tokens"])
def test_a_run_with_two_dashes_ends_without_a_traceback(command, engine_folder, flag):
    code, _, err = command(["generate", "abc", "--model", engine_folder, "--max-new-tokens", 4, f"{flag}=--"])
    assert code == (0 if flag == "--stop" else 2), err


# --- Flags of a method or rule that the run does not use are told of; help says which flag belongs to which.


MOST_LINES = 80

IDLE = [
    (["--method", "ngram", "--tree", "nosuch"], ["--tree counts for nothing with --method ngram"]),
    (["--draft-depth", "2"], ["--draft-depth counts for nothing with --method medusa"]),
    (["--epsilon", "0.2", "--delta", "0.2"], ["--epsilon counts for nothing with --acceptance match",
                                              "--delta counts for nothing with --acceptance match"]),
    (["--method", "none", "--draft-nodes", "3"], ["--draft-nodes counts for nothing with --method none"]),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "notes"), IDLE)
def test_a_flag_that_counts_for_nothing_is_told_of(command, engine_folder, flags, notes):
    where = ["--model", engine_folder, "--dtype", "float32", "--max-new-tokens", "4"]
    code, _, said = command(["generate", "fade", *where, *flags])
    assert code == 0
    assert [line for line in said.splitlines() if line.startswith("note:")] == [f"note: {n}" for n in notes]


@pytest.mark.parametrize(
    "flags", [[], ["--tree", "cartesian-2x2"], ["--method", "ngram", "--draft-top-k", "4"],
              ["--acceptance", "typical", "--epsilon", "0.2", "--root", "sample"]],
)  # fmt: skip
def test_a_flag_that_counts_needs_no_note(command, engine_folder, flags):
    where = ["--model", engine_folder, "--dtype", "float32", "--max-new-tokens", "4"]
    code, _, said = command(["generate", "fade", *where, *flags])
    assert code == 0
    assert "note:" not in said


def test_help_fits_two_screens_with_the_flags_of_each_drafter_and_rule(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, said, _ = command(["generate", "--help"])
    assert code == 0
    lines = said.splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 80
    words = " ".join(said.split())
    assert "--[no-]capture " in words  # on unless told otherwise, so that its text says what it does
    assert f"{', '.join(drafter_names())}; two in one tree: {merged_in_words()} [auto]" in words
    assert all(f"{name}: " in words for name in rule_names())
    listed = said.partition("by --help-settings:\n")[2]
    of_owner = {words.split()[0]: words for words in re.split(r"\n(?=  \S)", listed)}
    for owner, kind in option_kinds().items():
        assert all(f"--{item.name.replace('_', '-')} " in of_owner[owner] for item in fields(kind))


def test_the_settings_are_said_in_words_with_their_owners(command):
    code, said, _ = command(["generate", "--help-settings"])
    assert code == 0
    said = " ".join(said.split())
    for owner, kind in option_kinds().items():
        for item in fields(kind):
            words = said.partition(f"--{item.name.replace('_', '-')} ")[2].partition(" --")[0]
            assert owner in words
            assert f"[{item.default}]" in words
    assert "draft_model [3], eagle3 [8]" in said  # draft_depth, of which each has its own default


# --- The flags of the penalty and min-p: what they do, what is said of them, and what transformers is asked.


PENALTY = ["--penalty", "1.4", "--penalty-window", "12"]


def test_generate_takes_them_and_tells_distinct_n(command, engine_folder, tmp_path, engine):
    file = tmp_path / "run.json"
    code, out, _ = command(
        ["generate", "abc", "--model", engine_folder, "--dtype", "float32", "--max-new-tokens", "20",
         *PENALTY, "--trace", str(file), "--json"]
    )  # fmt: skip
    assert code == 0
    record = json.loads(out.splitlines()[-1])
    config = GenerationConfig.of(max_new_tokens=20, penalty=1.4, penalty_window=12, method="none")
    assert record["token_ids"] == tiny.emitted(engine.stream(engine.encode("abc"), config))
    assert len(record["distinct"]) == 4
    assert record["distinct"][0] == round(len(set(record["token_ids"])) / 20, 4)
    assert read_trace(file).config.penalty == 1.4


@pytest.mark.parametrize(
    ("settings", "idle"),
    [
        ({"penalty": 1.2}, {}),
        ({"min_p": 0.1, "temperature": 0.5}, {}),
        ({"penalty": 1.2, "penalty_window": 0}, {"penalty": "--penalty-window 0"}),
        ({"penalty_window": 8}, {"penalty_window": "--penalty 1"}),
        ({"min_p": 0.1}, {"min_p": "--temperature 0"}),
    ],
    ids=str,
)
def test_what_counts_for_nothing_is_told(settings, idle):
    assert idle_options(GenerationConfig.of(**settings)) == idle


def test_bench_compares_methods_under_a_penalty_and_leaves_transformers_out(command, engine_folder, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "abcab"}\n', encoding="utf-8")
    code, out, _ = command(
        ["bench", "--model", engine_folder, "--dtype", "float32", "--prompts", str(prompts), "--runs", "1",
         "--methods", "none,medusa,hf", "--max-new-tokens", "12", *PENALTY, "--json"]
    )  # fmt: skip
    assert code == 0
    record = json.loads(out.splitlines()[-1])
    assert (record["settings"]["penalty"], record["settings"]["penalty_window"]) == (1.4, 12)
    assert record["methods"]["medusa"]["identical_outputs"] == "1 of 1"
    assert list(record["left_out"]) == ["hf"]
    said = " ".join(out.split())
    assert "With a penalty of 1.4 on the last 12 tokens." in said
    assert "hf is left out: transformers has no penalty on the last tokens alone" in said


def test_transformers_is_asked_for_min_p(engine):
    """And draws what it draws when it is asked itself."""
    peer = PeerRunner(engine, "hf", GenerationConfig(temperature=0.9, min_p=0.3, max_new_tokens=20))
    ids = torch.tensor([tiny.PROMPT])
    torch.manual_seed(0)
    wanted = engine.target.model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, pad_token_id=0,
        do_sample=True, temperature=0.9, top_k=0, min_p=0.3,
    )[0, len(tiny.PROMPT) :]  # fmt: skip
    assert peer(tiny.PROMPT).tokens == wanted.tolist()


def test_a_window_of_nothing_is_no_penalty_for_transformers_either(engine):
    config = GenerationConfig(penalty=1.4, penalty_window=0, max_new_tokens=4)
    PeerRunner(engine, "hf", config).prepare(tiny.PROMPT)
    with pytest.raises(PeerError, match="repetition_penalty"):
        PeerRunner(engine, "hf", config.changed(penalty_window=1)).prepare(tiny.PROMPT)


# --- ``--method auto``: whose weights are there drafts, and a model without any decodes all the same.


SHORT = ["--dtype", "float32", "--max-new-tokens", "8", "--json"]


def tokens_of(out):
    return json.loads(out.splitlines()[-1])["token_ids"]


def test_a_model_without_heads_decodes_with_lookup_says_so_and_names_fit(command, base):
    code, out, err = command(["generate", "abcabc", "--model", base, *SHORT])
    assert code == 0, err
    assert " · lookup, match" in err
    assert f"note: there are no heads, so lookup drafts: `fit --model {base}` trains some\n" in err
    assert tokens_of(out) == tokens_of(
        command(["generate", "abcabc", "--model", base, "--method", "none", *SHORT])[1]
    )


def test_heads_that_are_there_draft_without_a_note(command, engine_folder):
    _, _, err = command(["generate", "abc", "--model", engine_folder, *SHORT])
    assert " · medusa, match" in err
    assert "note:" not in err
    _, _, err = command(["generate", "abc", "--model", engine_folder, "--heads", "none", *SHORT])
    assert " · lookup, match" in err
    assert "note:" not in err  # none were wanted


def test_a_chat_says_it_too(command, base):
    flags = ["chat", "--model", base, "--dtype", "float32", "--tree", "default"]
    code, _, err = command(flags, typed="/quit\n")
    assert code == 0
    assert "note: there are no heads, so lookup drafts" in err
    assert "note: --tree counts for nothing with --method lookup" in err


def test_in_python_the_weights_that_are_there_draft(engine, base):
    assert generate(engine, "abc", max_new_tokens=8, trace=True).trace.config.drafter.name == "medusa"
    bare = load(base, dtype="float32")
    assert generate(bare, "abcabc", max_new_tokens=8, trace=True).trace.config.drafter.name == "lookup"
    with pytest.raises(MedusaError, match="method medusa needs weights"):
        generate(bare, "abc", method="medusa")


def test_missing_weights_are_known_before_the_model_is_read(base, monkeypatch):
    def read(*_, **__):
        raise AssertionError("weights were read")

    monkeypatch.setattr(loading, "_read", read)
    with pytest.raises(MedusaError, match=r"base brings none: name them with --heads, .* lookup$"):
        loading.load_engine(LoadConfig(model=str(base)), methods=["medusa"])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--method", "lockup"], "--method is 'lockup': did you mean lookup?"),
        (["--method", "medusa+lokup"], "did you mean medusa+lookup?"),
        (["--acceptance", "typicle"], "--acceptance is 'typicle': did you mean typical?"),
        (["--temprature", "1"], "unrecognized arguments: --temprature 1: did you mean --temperature?"),
        (["--rounds", "1"], "unrecognized arguments: --rounds 1: --rounds is a flag of another command"),
        (
            ["upon", "a", "time"],
            "unrecognized arguments: upon a time: write a text of several words in quotes",
        ),
    ],
)
def test_a_name_that_is_nearly_right_is_guessed(command, flags, words):
    code, _, err = command(["generate", "abc", *flags])
    assert code == 2
    assert words in err


def test_an_option_that_is_nearly_right_is_guessed_and_no_list_is_cut(engine):
    with pytest.raises(MedusaError) as error:
        generate(engine, "abc", zzz=0.5)
    assert "…" not in str(error.value)
    with pytest.raises(MedusaError, match=r"no setting is called 'modle': did you mean model\?$"):
        load(modle="x")
