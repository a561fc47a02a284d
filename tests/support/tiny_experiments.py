"""Material for tests of experiments: a tiny engine with prompts, its variants, a file of prompts."""

from __future__ import annotations

import json

import small_model
import tiny
import torch

from medusa_core.checkpoints.names import HEADS_FOLDER
from medusa_core.config import ENGINE_VERSION, LoadConfig
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.drafters.medusa.files import save_heads
from medusa_core.experiments import store, variants
from medusa_core.experiments.record import MachineRecord, Mean, Row, Spread
from medusa_core.experiments.settings import RunSettings
from medusa_core.experiments.setup import Setup
from medusa_core.loading.load import load_engine

PROMPTS = {"Story": [[1, 2, 0, 3], [5, 0, 7]], "Chat": [[9, 4, 0]]}
NAMES = [
    "eagle3-table1",
    "eagle3-training",
    "figure3",
    "figure4",
    "figure5",
    "figure7",
    "grouped-heads",
    "spec-bench",
    "table2",
    "table3",
    "tokenswift",
]  # measured experiments
DEFAULT_MACHINE = MachineRecord(  # its kind is store.DEFAULT_KIND
    processor="AMD EPYC", cores=2, instructions="avx512_bf16", threads=2, torch="2", python="3"
)
SIMULATED = ["figure21", "figure22", "figure23"]


def build_setup(engine_folder) -> Setup:
    """Two short rounds on the tiny engine with its own accuracies."""
    load = LoadConfig(str(engine_folder), dtype="float32", device="cpu")
    engine = variants.calibrated(load_engine(load), PROMPTS["Story"])
    return Setup(engine=engine, load=load, prompts=PROMPTS, run=RunSettings(rounds=2, max_new_tokens=16))


def write_variants(engine_folder, root) -> str:
    """Folders of variants: poor heads, good heads, and a whole model whose base was damaged."""
    engine = load_engine(LoadConfig(str(engine_folder), dtype="float32", device="cpu"))
    model = engine.target.model
    save_heads(tiny.random_heads(model), root / "medusa1", "tiny", torch.float32)
    save_heads(medusa_draft(engine).heads, root / "medusa2", "tiny", torch.float32)
    torch.manual_seed(0)
    for weight in model.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    model.save_pretrained(root / "direct")
    engine.tokenizer.save_pretrained(root / "direct")
    save_heads(medusa_draft(engine).heads, root / "direct" / HEADS_FOLDER, "tiny", torch.float32)
    return ",".join(f"{name}={root / name}" for name in ("medusa1", "medusa2", "direct"))


def write_prompts(folder):
    """A file of three prompts."""
    file = folder / "letters.jsonl"
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("abc", "fgh", "ka")), "utf-8")
    return file


def write_draft_model(engine_folder, folder):
    """A folder with the first layer of the tiny model, as a smaller model."""
    engine = load_engine(LoadConfig(str(engine_folder), dtype="float32", device="cpu"))
    small_model.first_layers(engine.target.model).save_pretrained(folder)
    engine.tokenizer.save_pretrained(folder)
    return folder


def write_text(folder):
    """Letters to train on, a few windows of them."""
    file = folder / "text.txt"
    file.write_text("\n<|endoftext|>\n".join(["abcabdaccadbfghkab" * 3] * 20), encoding="utf-8")
    return file


def headline(**changes):
    """A record of what to expect, as ``reproduce spec-bench`` writes it."""

    phases = {"propose": 0.1, "verify": 0.3, "accept": 0.05, "commit": 0.05}

    def row(series, label, nodes, rate, **fields):
        spread = Spread(median=rate, low=rate - 1, high=rate + 1)
        return Row(
            series=series, label=label, prompts=32, new_tokens=9, tree_nodes=nodes, step_ms=0.5,
            phase_ms=phases, overhead=1.25, tokens_per_step=Mean(mean=2.0, standard_error=0.1),
            tokens_per_second=spread, speedup=spread, **fields,
        )  # fmt: skip

    rows = [
        row("none", "all kinds", 1, 1234.0, same_texts=32),
        row("medusa", "all kinds", 12, 4321.0, over_generate=Spread(median=9.5, low=9.5, high=9.5)),
        row("hf", "all kinds", None, 222.0),
        row("a step", "1 node", 1, 800.0, x=1.0),
        row("a step", "64 nodes", 64, 400.0, x=64.0),
    ]
    record = store.stated_record("figure3")
    pinned = {
        "name": "spec-bench", "rows": rows, "engine": ENGINE_VERSION, "machine": DEFAULT_MACHINE,
        "date": "2026-11-23",
    }  # fmt: skip
    return record.model_copy(update=pinned | changes)
