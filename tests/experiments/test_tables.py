"""Tables of README, docs and cards are those of the store, and no figure of speed is typed beside them."""

from __future__ import annotations

import ast
import hashlib
import json
import re

import pytest
from paths import ROOT
from tiny_experiments import headline

from medusa_core.errors import MedusaError
from medusa_core.experiments import remarks, store
from medusa_core.experiments.remarks import has_older_weights, reason_against_paper, shipped_weights
from tools import measured_tables as tables

FILES = tables.files_with_tables(ROOT)
PROSE = [
    *FILES,
    ROOT / "CHANGELOG.md",
    ROOT / "assets/measured/README.md",
    *(ROOT / "assets/learn").glob("*.json"),
]

NUMBER = r"(?:\d[\d.,]*|two|three|four|five|six|seven|eight|nine|ten|several|twice|half)"
FASTER = r"(?:as fast|faster|slower|the speed|as many tokens|plain decoding|plain ones|Medusa's|`generate`)"
SPEED = re.compile(
    rf"{NUMBER} (?:to {NUMBER} )?tokens (?:a|per) second|{NUMBER} ?tokens/s"
    rf"|{NUMBER} times {FASTER}|(?:twice|half) as (?:fast|many tokens)"
    rf"|{NUMBER} ?% (?:more tokens|faster|slower|the speed)"
    rf"|\d[\d.,]* ?ms\b|{NUMBER} milliseconds?\b|a millisecond (?:less|more)"
    r"|speedups? (?:of|is) \d|\d ?× (?:plain|faster)|\d ?倍"
)
QUOTED = re.compile(r"\bpapers?\b|\bpublished\b", re.IGNORECASE)


def prose_of(file):
    """What a file says without its tables and its code; of the changelog the top section alone."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        return "\n".join(strings(json.loads(text)))
    if file.name == "CHANGELOG.md":
        text = text.split("\n## ")[1]
    return re.sub(r"^ *```.*?^ *```", "", tables.BLOCK.sub("", text), flags=re.DOTALL | re.MULTILINE)


def strings(data):
    if isinstance(data, str):
        yield data
    elif isinstance(data, (dict, list)):
        for part in data.values() if isinstance(data, dict) else data:
            yield from strings(part)


def typed_figures(text):
    """Sentences with a figure of speed that do not say it is a paper's."""
    sentences = re.split(r"(?<=[.;:|])\s+|\n\n|\n- ", text)
    return [
        found
        for found in (" ".join(s.split()) for s in sentences)
        if SPEED.search(found) and not QUOTED.search(found)
    ]


@pytest.mark.parametrize("file", PROSE, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_figure_of_speed_is_typed_into_prose(file):
    assert typed_figures(prose_of(file)) == []


def test_no_figure_of_speed_is_typed_into_the_texts_of_page_and_commands():
    texts = [text for folder in ("ui", "medusa_core") for text in texts_of_code(ROOT / folder)]
    for file in (ROOT / "assets" / "language").glob("*.json"):
        texts += strings(json.loads(file.read_text(encoding="utf-8")))
    scripts = (ROOT / "assets" / "web").rglob("*.js")
    texts += [file.read_text(encoding="utf-8") for file in scripts if "vendor" not in file.parts]
    assert len(texts) > 3000
    assert [found for text in texts for found in typed_figures(text)] == []


def texts_of_code(folder):
    """The strings of all modules but their docstrings."""
    for file in folder.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        expressions = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in expressions:
                yield node.value


@pytest.mark.parametrize(
    "sentence",
    [
        "Plain decoding makes\n363 tokens/s and Medusa 720.",
        "They run at 1.5 and 1.7 times plain decoding's speed.",
        "It is three times as fast as before.",
        "A step of the embedded model takes 1.1 ms so.",
        "Medusa makes 26 % more tokens a second.",
        "The gain is twice as fast.",
        "A run makes 300 tokens a second, 118 before.",
    ],
)
def test_a_typed_figure_would_be_seen(sentence):
    assert typed_figures(sentence)
    assert not typed_figures(f"In the paper: {sentence}".replace(": ", " ").replace("\n", " "))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_table_is_that_of_its_record(file):
    text = file.read_text(encoding="utf-8")
    assert tables.rendered(text) == text, "python -m tools.measured_tables"


def test_every_table_stands_somewhere_and_the_cards_have_theirs():
    named = {name for file in FILES for _, name, _ in tables.BLOCK.findall(file.read_text(encoding="utf-8"))}
    assert {*tables.TABLES, *tables.OF_ALL_MACHINES} - {tables.DRAFTER} <= named
    assert {f"drafter {name}" for name in ("draft_model", "eagle3", "hydra")} <= named


def test_what_was_not_measured_is_one_line(tmp_path):
    for name in ("headline", "steps", "drafter hydra", "long-texts"):
        (line,) = tables.table(name, tmp_path)
        assert line.startswith("Not measured yet: `python -m medusa_core reproduce ")
    assert tables.table("machines", tmp_path) == tables.table("headline", tmp_path)
    assert tables.table("gpu", tmp_path) == ["Not measured yet on a GPU."]
    store.keep(headline(name="figure3"), tmp_path)
    assert "| AMD EPYC with AVX-512 and bfloat16, 2 cores | not measured yet |" in tables.table(
        "machines", tmp_path
    )
    assert "Not measured yet" in tables.table("headline", tmp_path)[0]


def test_drafters_are_compared_where_most_of_them_were_measured(tmp_path):
    record = headline()
    amd = record.machine.model_copy(update={"processor": "AMD EPYC", "instructions": "avx2"})
    store.keep(record, tmp_path)
    store.keep(record.model_copy(update={"machine": amd}), tmp_path)
    assert tables.table("drafters", tmp_path)[-1].startswith("AMD EPYC with AVX-512")
    further = record.rows[1].model_copy(update={"series": "eagle3"})
    store.keep(record.model_copy(update={"machine": amd, "rows": [*record.rows, further]}), tmp_path)
    assert tables.table("drafters", tmp_path)[-1].startswith("AMD EPYC with AVX2")
    assert tables.table("headline", tmp_path)[-1].startswith("AMD EPYC with AVX-512")


def test_the_headline_and_the_machines_state_the_record(tmp_path, monkeypatch):
    of_now = headline().model
    machine = headline().machine.model_copy(update={"other_cores_busy": 0.9})
    old = headline(engine=2, machine=machine, model=of_now.model_copy(update={"weights": ""}))
    store.keep(old, tmp_path)
    lines = "\n".join(tables.table("headline", tmp_path))
    assert "| Medusa | 12 | 4,321 (4,320 to 4,322) | 2.00 ± 0.10 | 0.50 |" in lines
    assert "32 of 32" in lines
    date = "23 November 2026, with an older engine, with older weights"
    assert f"{date}, while other programs used 0.9 cores" in lines
    assert "| nodes | 1 | 64 |" in tables.table("steps", tmp_path)
    own = headline().machine.model_copy(update={"processor": "AMD EPYC 7763", "instructions": "avx2"})
    store.keep(headline(machine=own, date="2026-12-01", model=of_now), tmp_path)
    machines = tables.table("machines", tmp_path)
    assert [line.split(" | ")[0] for line in machines[2:4]] == [
        "| AMD EPYC with AVX-512 and bfloat16, 2 cores", "| AMD EPYC with AVX2, 2 cores",
    ]  # fmt: skip
    assert all("| 4,321 (4,320 to 4,322) |" in line for line in machines[2:4])
    assert "| bfloat16 | 1 December 2026 |" in machines[3]
    held = headline().machine.model_copy(update={"limited_to": "avx2"})
    store.keep(headline(machine=held, engine=9), tmp_path)
    machines = tables.table("machines", tmp_path)
    assert machines[4].startswith("| AMD EPYC limited to AVX2, 2 cores |")
    # Files state the newest engine's headline, whatever machine writes them.
    for slug in (store.DEFAULT_KIND, "amd-epyc-avx2-2", "another"):
        monkeypatch.setattr(store, "own_kinds", lambda slug=slug: [slug])
        assert "AMD EPYC with AVX2" in tables.table("headline", tmp_path)[-1]


def test_the_store_knows_the_shipped_weights():
    digest = hashlib.sha256()
    for file in sorted((ROOT / "assets" / "model").rglob("*.safetensors")):
        digest.update(file.read_bytes())
    assert shipped_weights("embedded") == digest.hexdigest()[:8]
    record = headline()
    for older, changes in ((False, {"weights": shipped_weights("embedded")}), (True, {"weights": ""})):
        model = record.model.model_copy(update={"base": "embedded", **changes})
        assert has_older_weights(record.model_copy(update={"model": model})) is older
        other = model.model_copy(update={"base": "another", "weights": ""})
        assert not has_older_weights(record.model_copy(update={"model": other}))


# --- What single runs of ``bench`` measured on a GPU.

BENCH = store.MEASURED / "nvidia-h200" / "bench.jsonl"


def gpu_rows(lines):
    """The rows of one machine's table by its head."""
    head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|")
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_the_table_of_gpus_has_a_row_for_each_method_and_size_of_the_stored_runs():
    lines = tables.table("gpu")
    rows = gpu_rows(lines)
    shape = "llama-7b, random weights, 6.74 B"
    assert [[row[name] for name in ("model", "captured", "method", "nodes")] for row in rows] == [
        ["embedded, 14.4 M", "no", "plain decoding", "1"],
        ["embedded, 14.4 M", "no", "Medusa", "64"],
        ["embedded, 14.4 M", "", "`generate`", ""],
        ["embedded, 14.4 M", "yes", "plain decoding", "1"],
        ["embedded, 14.4 M", "yes", "Medusa", "64"],
        *(
            [shape, captured, "plain decoding" if nodes == 1 else "Medusa", str(nodes)]
            for captured in ("no", "yes")
            for nodes in (1, 16, 32, 64)
        ),
    ]
    runs = [json.loads(line) for line in BENCH.read_text(encoding="utf-8").splitlines()]
    medusa, random = runs[1]["record"]["methods"]["medusa"], runs[-1]["record"]["points"]
    low, high = medusa["tokens_per_second_range"]
    assert rows[4]["tokens/s"] == f"{medusa['tokens_per_second']:,.0f} ({low:,.0f} to {high:,.0f})"
    assert rows[4]["over a plain step"] == f"{medusa['overhead']:.2f}"
    assert rows[-1]["over a plain step"] == f"{random[-1]['step_ms'] / random[0]['step_ms']:.2f}"
    # Random weights tell nothing of tokens.
    assert {row[name] for row in rows[5:] for name in ("tokens per step", "tokens/s")} == {""}
    # As README says below it.
    plain = [float(rows[place]["ms a step"]) for place in (0, 3)]
    assert plain[1] < plain[0] / 2
    origin = lines[-len(runs) - 2 :]
    assert origin[0].startswith("NVIDIA H200, bfloat16, torch 2.11.0+cu130, 26 November 2026, 27 November")
    assert all(line.startswith(f"- `{run['command']}`") for line, run in zip(origin[2:], runs, strict=True))


def test_a_second_machine_s_runs_have_a_table_of_their_own(tmp_path):
    for folder, name, run in (("nvidia-a", "NVIDIA A", 1), ("nvidia-b", "NVIDIA B", 3)):
        data = json.loads(BENCH.read_text(encoding="utf-8").splitlines()[run])
        data["record"]["machine"] |= {"gpu": name, "other_cores_busy": 0.9 if name[-1] == "B" else 0.0}
        (tmp_path / folder).mkdir()
        (tmp_path / folder / BENCH.name).write_text(json.dumps(data) + "\n", encoding="utf-8")
    lines = tables.table("gpu", tmp_path)
    first, second = (i for i, line in enumerate(lines) if line.startswith("NVIDIA"))
    assert (lines[first][:10], lines[second][:10]) == ("NVIDIA A, ", "NVIDIA B, ")
    tables_of = gpu_rows(lines[:first]), gpu_rows(lines[first:second])
    assert [len(rows) for rows in tables_of] == [2, 4]
    assert (lines[first + 2][-1:], lines[-1].endswith("`, while other programs used 0.9 cores")) == (
        "`",
        True,
    )
    # Of the tree sizes alone there are no tokens, and no columns for them.
    (tmp_path / "nvidia-a" / BENCH.name).unlink()
    assert "tokens/s" not in tables.table("gpu", tmp_path)[0]
    # A folder with nothing else is no kind of machine.
    assert store.kinds(tmp_path) == []
    assert "NVIDIA" not in "\n".join(tables.table("machines", tmp_path))


@pytest.mark.parametrize("name", ["without-loss", "long-texts", "drafters", "kinds-of-text"])
def test_why_the_order_is_not_the_paper_s_stands_above_the_table(name):
    reason = reason_against_paper(store.stated_record(tables.TABLES[name][0]))
    lines = tables.table(name)
    assert lines[0] == reason if reason else lines[0].startswith("| ")
    assert sum(line.startswith("| --- |") for line in lines) == 1


def test_a_block_is_rewritten_and_nothing_else():
    text = "a\n<!-- measured: drafter hydra -->\nbefore\n<!-- /measured -->\nb\n"
    new = tables.rendered(text)
    assert (
        new.startswith("a\n<!-- measured: drafter hydra -->\n"),
        new.endswith("<!-- /measured -->\nb\n"),
    ) == (True, True)
    assert "before" not in new
    assert tables.rendered(new) == new


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("<!-- measured: nothing -->\n<!-- /measured -->", "no table 'nothing'"),
        ("<!-- measured: drafter -->\n<!-- /measured -->", "no table 'drafter'"),
        ("<!-- measured: headline x -->\n<!-- /measured -->", "no table 'headline x'"),
        ("<!-- measured: headline -->\n", "close it"),
        ("<!-- measured: headline -->\n<!-- measured: steps -->\n<!-- /measured -->", "close it"),
    ],
)
def test_a_bad_block_is_refused(text, cause):
    with pytest.raises(MedusaError, match=cause):
        tables.rendered(text)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("kind/figure3.json", lambda folder: tables.main(["--check"], folder)),
        ("kind/bench.jsonl", lambda folder: tables.table("gpu", folder)),
        ("remarks.json", lambda folder: shipped_weights("embedded")),
    ],
)
def test_a_damaged_or_missing_file_of_the_store_is_named(name, read, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "MEASURED", tmp_path)
    monkeypatch.setattr(remarks, "MEASURED", tmp_path)
    if name != "remarks.json":
        (tmp_path / "kind").mkdir()
        (tmp_path / name).write_text('{"cut', encoding="utf-8")
    with pytest.raises(MedusaError, match=rf"cannot read .*{name} .*: restore it with git checkout"):
        read(tmp_path)


@pytest.mark.parametrize("content", ["[]", '"text"', "7", '{"embedded": []}', '{"record": []}', "{}"])
def test_a_file_of_another_kind_is_named(content, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "MEASURED", tmp_path)
    monkeypatch.setattr(remarks, "MEASURED", tmp_path)
    (tmp_path / "kind").mkdir()
    (tmp_path / "kind" / "bench.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(MedusaError, match=r"cannot read .*bench.jsonl .*: restore it with git checkout"):
        tables.table("gpu", tmp_path)
    (tmp_path / "remarks.json").write_text(content, encoding="utf-8")
    if content not in ('{"record": []}', "{}"):
        with pytest.raises(MedusaError, match=r"cannot read .*remarks.json .*: restore it with git checkout"):
            shipped_weights("embedded")


def test_the_command_compares_and_writes(tmp_path, capsys):
    readme = tmp_path / "README.md"
    readme.write_text("<!-- measured: kinds-of-text -->\n<!-- /measured -->\n", encoding="utf-8")
    with pytest.raises(SystemExit) as stop:
        tables.main(["--check"], tmp_path)
    assert (stop.value.code, "README.md differs" in capsys.readouterr().out) == (1, True)
    tables.main([], tmp_path)
    assert "| Story | " in readme.read_text(encoding="utf-8")
    tables.main(["--check"], tmp_path)
