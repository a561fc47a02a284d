"""What ``bench`` prints: two tables that fit 80 columns, both speedups, and who is left out and why."""

from __future__ import annotations

import json
import re

import block_files
import eagle3_files
import mtp_files
import pytest
import small_model
import torch
from bad_answers import CPU
from hydra_heads import random_hydra
from tokenswift_heads import random_tokenswift

from medusa_core.cli.bench import _print_tables
from medusa_core.cli.flags import COLUMNS
from medusa_core.cli.main import build_parser
from medusa_core.drafters import drafter_names, merged_in_words, method_names, methods_in_words
from medusa_core.drafters.hydra.files import save_heads
from medusa_core.drafters.tokenswift import files as swift_files
from medusa_core.errors import short_line
from medusa_core.evaluation import peers
from medusa_core.evaluation.bench import ALL_PEERS
from medusa_core.evaluation.llama_cpp_peer import LLAMA_CPP_PEERS

HEADERS = (
    "method", "tokens", "per second", "per step", "speedup over", "none", "hf", "output as", "none's",
    "nodes", "propose", "verify", "accept", "commit", "a step", "overhead",
)  # fmt: skip


SPREADS = 4  # parts of the line with the lowest and highest rounds and the rest of a long name


def figures(name, scale):
    """Of one method, with numbers as wide as they get."""
    own = name not in ALL_PEERS
    return {
        "tokens_per_second": 123.45 * scale,
        "tokens_per_second_range": [119.0 * scale, 130.04 * scale],
        "tokens_per_step": 12.345,
        **{
            f"{key}{part}": value
            for key in ("speedup", "speedup_over_hf")
            for part, value in (("", 1.2345 * scale), ("_range", [1.1 * scale, 1.345 * scale]))
        },
        "identical_outputs": "1000 of 1000",
    } | (
        {
            "tree_nodes": 256,
            "step_ms": 1234.567,
            "phase_ms": dict.fromkeys(("propose", "verify", "accept", "commit"), 1234.567),
            "overhead": 12.345,
            "over_limit": 123.45,
        }
        if own
        else {}
    )


def record(names, scale=1.0, **changes):
    return {
        "machine": {"processor": "A Processor With a Long Name @ 2.60GHz [with brackets]", "threads": 64},
        "model": {"name": "a model", "dtype": "bfloat16", "device": "cpu", "forward": "forward in C, exact"},
        "settings": {"prompts": 34, "runs": 3, "temperature": 0.0},
        "methods": {name: figures(name, scale) for name in names},
        "kinds": {},
        "left_out": {},
    } | changes


def printed(capsys, *arguments, **changes):
    _print_tables(record(*arguments, **changes))
    return capsys.readouterr().out


@pytest.mark.parametrize("scale", [0.01, 1.0, 10.0])
def test_the_tables_fit_for_every_method_and_no_header_is_broken(capsys, scale):
    names = [*method_names(), *ALL_PEERS]
    out = printed(capsys, names, scale)
    assert max(map(len, out.splitlines())) <= COLUMNS == 80
    assert "…" not in out
    for words in HEADERS:
        assert words in out
    speeds, steps = out.split("milliseconds of a step")
    for name in names:
        rows = [line.split() for part in (speeds, steps) for line in part.splitlines()]
        # A long name of two drafters breaks behind the plus sign; its second line has no numbers.
        first, plus, _ = name.partition("+")
        shown = [row for row in rows if len(row) > SPREADS and row[0].partition("+")[:2] == (first, plus)]
        alike = [other for other in names if other.partition("+")[:2] == (first, plus)]
        assert len(shown) == (1 if name in ALL_PEERS else 2) * len(alike), name
    assert "1000 of 1000" in out
    assert "[with brackets]" in " ".join(out.split())


def test_a_long_name_breaks_in_its_own_column(capsys):
    out = printed(capsys, ["none", "hf", "a-drafter-whose-name-is-as-long-as-this-one"])
    assert max(map(len, out.splitlines())) <= COLUMNS
    assert "…" not in out


@pytest.mark.parametrize("names", [["ngram"], ["hf"], ["none", "ngram"], ["hf", "hf-lookup"]])
def test_only_what_was_compared_has_a_column(capsys, names):
    out = printed(capsys, names)
    assert out.count("speedup over") == len({"none", "hf"} & set(names))
    assert ("output as" in out) == ("none" in names)
    assert ("milliseconds of a step" in out) == any(name not in ALL_PEERS for name in names)


def test_who_was_left_out_is_said_with_the_reason_and_peers_are_explained(capsys):
    out = printed(capsys, ["none", "hf-lookup"], left_out={"hf-static": "there is [no] compiler"})
    assert "hf-static is left out: there is [no] compiler.\n" in out
    assert "hf-lookup: generate with prompt lookup, 10 tokens a draft.\n" in out
    assert "hf:" not in out
    assert "temperature" not in out
    out = printed(capsys, ["none"], left_out=dict.fromkeys(LLAMA_CPP_PEERS, "it is not installed"))
    assert "llama-cpp and llama-cpp-q8 are left out: it is not installed.\n" in out
    settings = {"prompts": 1, "runs": 1, "temperature": 0.7}
    assert "at temperature 0.7" in printed(capsys, ["none", "hf"], settings=settings)


def test_the_help_names_every_method(capsys):
    with pytest.raises(SystemExit):
        build_parser().parse_args(["bench", "--help"])
    lines = re.sub(r"-\n\s+", "-", capsys.readouterr().out)  # a name may be broken at its hyphen
    said = lines.replace(",", " ").replace(";", " ").split()
    assert {*drafter_names(), *ALL_PEERS} <= set(said)
    assert merged_in_words() in " ".join(said)


def test_every_method_through_the_command(command, engine, shop, monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "COMPILER", "eager")  # the compiler's last stage takes its time
    names = [*method_names(), *peers.PEERS]
    model = engine.target.model
    eagle3 = eagle3_files.write(tmp_path / "eagle3", eagle3_files.state(), eagle3_files.config())
    save_heads(
        random_hydra(model, prefix=False), tmp_path / "hydra", "tiny", model.get_input_embeddings().weight
    )
    swift_files.save_heads(random_tokenswift(model), tmp_path / "tokenswift", "tiny")
    small_model.first_layers(model).save_pretrained(tmp_path / "small")
    mtp_files.write(tmp_path / "mtp", mtp_files.state(model))
    block_files.write(tmp_path / "block", model)
    others = ("hydra", "tokenswift", "small", "mtp", "block")
    folders = [shop.engine / "heads", eagle3, *(tmp_path / name for name in others)]
    heads = "+".join(map(str, folders))
    code, out, err = command(
        ["bench", "--model", shop.engine, "--heads", heads, "--prompts", shop.engine / "text.jsonl",
         "--limit", 2, "--runs", 1, "--max-new-tokens", 12, "--methods", ",".join(names), "--json", *CPU]
    )  # fmt: skip
    torch.compiler.reset()
    assert code == 0, err
    *lines, last = out.splitlines()
    assert max(map(len, lines)) <= COLUMNS
    found = json.loads(last)
    assert list(found["methods"]) == names
    for row in found["methods"].values():
        assert row["identical_outputs"] == "2 of 2"
        assert {"speedup", "speedup_range", "speedup_over_hf", "speedup_over_hf_range"} <= set(row)
    assert found["machine"]["transformers"]


@pytest.mark.parametrize("methods", ["hf,hf", "", "none,"])
def test_bad_methods_are_one_line_with_all_names(command, methods):
    code, out, err = command(["bench", "--methods", methods, *CPU])
    assert (code, out) == (2, "")
    known = f"{', '.join(ALL_PEERS)}, {methods_in_words()}"
    line = short_line(f"--methods is {methods!r}: use all, or each at most once of {known}")
    assert err == f"error: {line}\n"


def test_a_prompt_that_fills_the_context_is_refused_for_a_peer_alone(command, shop):
    file = shop.out / "long.jsonl"
    file.write_text(json.dumps({"prompt": "a" * 96}), encoding="utf-8")
    code, _, err = command(["bench", "--model", shop.engine, "--prompts", file, "--methods", "hf", *CPU])
    assert code == 2
    assert "the context holds 96" in err
