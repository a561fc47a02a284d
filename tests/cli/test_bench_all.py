"""``bench --methods all``: every method that the loaded weights can run, with figures by kind of text."""

from __future__ import annotations

import json

import pytest
from bad_answers import CPU
from rich.cells import cell_len
from test_bench_tables import printed, record

from medusa_core.cli import tables
from medusa_core.cli.bench import KIND_FIGURES
from medusa_core.cli.flags import COLUMNS
from medusa_core.drafters import method, method_names
from medusa_core.evaluation.bench import ALL_PEERS
from medusa_core.evaluation.llama_cpp_peer import LLAMA_CPP_PEERS

KINDS = ("Story", "Dialogue", "Maths")


def test_all_are_those_whose_weights_are_loaded_and_each_kind_has_its_own_figures(command, shop, tmp_path):
    file = tmp_path / "file.jsonl"
    lines = [{"prompt": "a b c a b", "category": "poem"}, {"prompt": "b b a"}, {"text": "c a", "category": 7}]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    code, out, err = command(
        ["bench", "--model", shop.engine, "--prompts", file, "--runs", 1, "--max-new-tokens", 9,
         "--ignore-eos", "--methods", "all,hf", "--json", *CPU]
    )  # fmt: skip
    assert code == 0, err
    *printed_lines, last = out.splitlines()
    assert max(map(len, printed_lines)) <= COLUMNS
    found = json.loads(last)
    own = {name for name in method_names() if not method(name).has_weights or name.startswith("medusa")}
    assert found["methods"].keys() | found["left_out"].keys() == own | ALL_PEERS.keys() - {"hf-static"}
    assert found["left_out"].keys() <= LLAMA_CPP_PEERS.keys()  # an optional package
    assert next(iter(found["methods"])) == "none"
    assert list(found["kinds"]) == ["poem", "file"]  # a line without a kind has its file's name
    for name, whole in found["methods"].items():
        parts = [found["kinds"][kind][name] for kind in ("poem", "file")]
        if name != "llama-cpp-q8":  # its weights are rounded
            assert [part["identical_outputs"] for part in parts] == ["1 of 1", "2 of 2"]
        if "tree_nodes" in whole:
            assert whole["tree_nodes"] == max(part["tree_nodes"] for part in parts)
        # Three texts of nine tokens: the steps of all are those of the parts.
        steps = [count / part["tokens_per_step"] for count, part in zip((9, 18), parts, strict=True)]
        assert 27 / whole["tokens_per_step"] == pytest.approx(sum(steps), rel=0.01)


def test_the_bar_fills_where_a_method_is_left_out(command, shop, tmp_path, monkeypatch):
    file, ended = tmp_path / "file.jsonl", []
    file.write_text('{"prompt": "a b c a b"}\n{"prompt": "b b a"}\n', encoding="utf-8")

    class Bar(tables.tqdm):
        def close(self):
            ended.append((self.n, self.total))
            super().close()

    monkeypatch.setattr(tables, "tqdm", Bar)
    bench = ["bench", "--model", shop.engine, "--prompts", file, "--runs", 2, "--max-new-tokens", 4, *CPU]
    code, out, err = command([*bench, "--methods", "none,hf,medusa", "--penalty", 1.4])
    assert code == 0, err
    assert "hf is left out" in out
    assert set(ended) == {(2 * 2 * 2, 2 * 2 * 2)}


def by_kind(kinds):
    """A record whose figures differ from kind to kind."""
    names = [*method_names(), *ALL_PEERS]
    return names, {
        kind: {
            name: {**figures, "tokens_per_second": float(number * 10 + place)}
            for place, (name, figures) in enumerate(record(names, 1.0 + number / 8)["methods"].items())
        }
        for number, kind in enumerate(kinds)
    }


@pytest.mark.parametrize(
    "kinds",
    [
        KINDS,
        [f"kind {i}" for i in range(14)],
        ["一个很长很长的文本种类名称", "summarization of long texts", "QA"],
    ],
)
def test_the_tables_by_kind_fit_and_show_every_kind_once_a_figure(capsys, kinds):
    names, found = by_kind(kinds)
    out = printed(capsys, names, kinds=found)
    assert max(map(cell_len, out.splitlines())) <= COLUMNS
    assert "…" not in out
    _head, *tables = out.split(", by kind of text")
    assert len(tables) >= len(KIND_FIGURES)
    for kind in kinds:
        assert sum(kind in table for table in tables) >= len(KIND_FIGURES)
    best = [*method_names(), *ALL_PEERS][-1]
    said = " ".join(tables[-1].split())
    assert f"Fastest: {kinds[0]} {best} (" in said


def test_one_kind_has_no_table_of_its_own(capsys):
    names, found = by_kind(KINDS[:1])
    assert "by kind of text" not in printed(capsys, names, kinds=found)


def test_without_plain_decoding_nothing_is_said_of_speedup_by_kind(capsys):
    _, found = by_kind(KINDS)
    figures = dict.fromkeys(("tokens_per_second", "tokens_per_step"), 1.0)
    kinds = {kind: {"hf": figures, "hf-lookup": figures} for kind in found}
    changed = record(["hf", "hf-lookup"])["methods"]
    for one in changed.values():
        del one["speedup"]
    out = printed(capsys, ["hf", "hf-lookup"], kinds=kinds, methods=changed)
    assert out.count("by kind of text") == 1
    assert "tokens per step, by kind of text" in out
