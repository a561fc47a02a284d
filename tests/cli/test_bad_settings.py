"""Settings in somebody's files that transformers and peft do not check end in one line, in every front.

As in ``test_bad_input``: the command line, Python and the page.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import page_runs
import pytest
import torch
from bad_answers import CPU, refused, says
from bad_input import (
    ADAPTER_CONFIG,
    CONFIG,
    WEIGHTS,
    adapted,
    base,
    change_json,
    change_tensors,
    heads,
    other_heads,
    settings,
    text,
)
from bad_tables import AGAIN, Row
from page_runs import run_decode

from medusa_core import MedusaError, generate, load
from medusa_core.checkpoints.base import check_weights
from medusa_core.config import LoadConfig
from ui.records.settings import Selection
from ui.records.updates import StopFlag
from ui.runs.session import Session

GENERATION = "generation_config.json"
MANY = 10**8
PROJECTION = "model.layers.0.self_attn.q_proj.weight"
SETTINGS = page_runs.SETTINGS | {"max_new_tokens": 8}


def ends(value: object) -> Callable:
    return base(text(GENERATION, json.dumps({"eos_token_id": value})))


def kind_of_weight(name: str, kind: torch.dtype) -> Callable:
    def damage(_, folder):
        change_tensors(folder / WEIGHTS, lambda state: state.update({name: (100 * state[name]).to(kind)}))

    return base(damage)


def pickled_weights(_, folder):
    def change(state):
        torch.save(state | {PROJECTION: state[PROJECTION].int()}, folder / "pytorch_model.bin")

    change_tensors(folder / WEIGHTS, change)
    (folder / WEIGHTS).unlink()


def no_vocabulary(_, folder):
    data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    data["model"] = {"type": "BPE", "vocab": {}, "merges": []}
    (folder / "tokenizer.json").write_text(json.dumps(data | {"added_tokens": []}), encoding="utf-8")


def adapter_with(**changes: object) -> Callable:
    return adapted(lambda folder: change_json(folder / ADAPTER_CONFIG, **changes))


def heads_of_kind(kind: torch.dtype, name: str = "1.0.linear.weight") -> Callable:
    return heads(other_heads(lambda state: state.update({name: state[name].to(kind)})))


EOS = r"eos_token_id in its generation_config\.json is "
NUMBERS = "write the number of a token or a list of numbers"
NAMES = "write the names of modules instead, or use another adapter"
SLOW = r"([\w.]+)*!"  # tries every way to cut a name into pieces
ROWS: dict[str, Row] = {
    "ends that are a list of lists": Row(ends([[1, 2]]), EOS + r"\[\[1, 2\]\]", NUMBERS),
    "ends that are an object": Row(ends({"a": 1}), EOS + r"\{'a': 1\}", NUMBERS),
    "an end that is text": Row(ends("x"), EOS + "'x'", NUMBERS),
    "an end that is true": Row(ends(True), EOS + "True", NUMBERS),
    "an end of half a token": Row(ends([1, 0.5]), EOS + r"\[1, 0\.5\]", NUMBERS),
    "generation settings that are a list": Row(
        base(text(GENERATION, "[]")), r"generation_config\.json is not a JSON object", AGAIN
    ),
    "a hundred million labels": Row(
        base(settings(num_labels=MANY)), "names 100000000 labels, models have 1 to 10000", AGAIN
    ),
    "labels inside a part": Row(
        base(settings(vision_config={"num_labels": MANY})), "names 100000000 labels", AGAIN
    ),
    "a table of labels": Row(
        base(settings(id2label={str(n): "x" for n in range(20_000)})), "names 20000 labels", AGAIN
    ),
    "a hundred million layers": Row(
        base(settings(num_hidden_layers=MANY, model_type="qwen2")), "names 100000000 layers", AGAIN
    ),
    "layers of 400 digits": Row(
        base(settings(num_hidden_layers=10**400)), "names 10+ … 0+ layers, models have 1 to 1000", AGAIN
    ),
    "a kind that is a list": Row(
        base(settings(model_type=["llama"])), r"model_type \['llama'\], which transformers", "upgrade"
    ),
    "a width of 0": Row(base(settings(hidden_size=0)), "names a hidden_size of 0", AGAIN),
    "a context of less than nothing": Row(
        base(settings(max_position_embeddings=-1)), "names a max_position_embeddings of -1", AGAIN
    ),
    "an epsilon that is no number": Row(
        base(settings(rms_norm_eps=math.nan)), "names NaN as rms_norm_eps", AGAIN
    ),
    "a head of 400 digits": Row(base(settings(head_dim=10**400)), "too large", "check its config.json"),
    "a projection of whole numbers": Row(
        kind_of_weight(PROJECTION, torch.int64), "q_proj.weight in model.safetensors is of kind I64", AGAIN
    ),
    "a projection of truth values": Row(
        kind_of_weight(PROJECTION, torch.bool), "q_proj.weight in model.safetensors is of kind BOOL", AGAIN
    ),
    "an LM head of bytes": Row(
        kind_of_weight("lm_head.weight", torch.uint8), "lm_head.weight in .* is of kind U8", AGAIN
    ),
    "a norm of complex numbers": Row(
        kind_of_weight("model.norm.weight", torch.complex64), "norm.weight in .* is of kind C64", AGAIN
    ),
    "a pickled projection of whole numbers": Row(
        base(pickled_weights), "q_proj.weight in pytorch_model.bin is of kind int32", AGAIN
    ),
    "a tokenizer without words": Row(base(no_vocabulary), "its vocabulary is empty", AGAIN),
    "heads of whole numbers": Row(
        heads_of_kind(torch.int64), "are float32, int64: they must be of one floating-point kind",
        "fetch or convert the heads again",
    ),
    "heads of truth values": Row(
        heads_of_kind(torch.bool), "are bool, float32: they must be of one floating-point kind",
        "fetch or convert the heads again",
    ),
    "a last layer of whole numbers": Row(
        heads_of_kind(torch.int32, "1.1.weight"), "are float32, int32: they must be", "heads again"
    ),
    "an adapter's modules that are no pattern": Row(
        adapter_with(target_modules="(q_proj"), r"target_modules is not a pattern \(missing \)", NAMES
    ),
    "an adapter's ranks by no pattern": Row(
        adapter_with(rank_pattern={"*q": 2}), r"rank_pattern is not a pattern \(", NAMES
    ),
}  # fmt: skip


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", ROWS)
def test_settings_nobody_checks_end_in_one_line(command, shop, name):
    row = ROWS[name]
    named = row.build(shop)
    began = time.monotonic()
    refused(command(["generate", "abc", "--max-new-tokens", 8, *CPU, *named.flags()]), row)
    assert time.monotonic() - began < 60
    with pytest.raises(MedusaError) as caught:
        load(named.model, heads=named.heads, dtype="float32", device="cpu")
    says(str(caught.value), row)
    session = Session(LoadConfig(named.model, named.heads, dtype="float32", device="cpu"))
    *_, last = run_decode(session, "abc", SETTINGS | {"selection": Selection()}, StopFlag())
    assert last.problem
    says(last.status, row)


@pytest.mark.sample(1)
@pytest.mark.parametrize("key", ["target_modules", "exclude_modules", "rank_pattern", "layers_pattern"])
def test_a_pattern_that_does_not_end_is_refused_after_a_while(shop, monkeypatch, key):
    monkeypatch.setattr("medusa_core.checkpoints.adapters.SECONDS", 1.0)
    value = {SLOW: 2} if key == "rank_pattern" else [SLOW] if key == "layers_pattern" else SLOW
    named = adapter_with(**{key: value})(shop)
    began = time.monotonic()
    with pytest.raises(MedusaError, match=rf"its {key} takes more than 1 s to compare .*: {NAMES}"):
        load(named.model, heads=named.heads, dtype="float32", device="cpu")
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    "changes",
    [
        {"target_modules": r".*\.(q|v)_proj"},
        {"rank_pattern": {r"layers\.0\..*q_proj": 2}},
        {"exclude_modules": "lm_head"},
    ],
    ids=str,
)
def test_patterns_of_real_adapters_work(shop, changes):
    named = adapter_with(**changes)(shop)
    engine = load(named.model, heads=named.heads, dtype="float32", device="cpu")
    plain = adapted()(type(shop)(shop.engine, shop.out / "again"))
    expected = load(plain.model, heads=plain.heads, dtype="float32", device="cpu")
    assert generate(engine, "abc", max_new_tokens=8).token_ids == (
        generate(expected, "abc", max_new_tokens=8).token_ids
    )


@pytest.mark.parametrize("config", [{"return_dict": False}, {"output_hidden_states": True}], ids=str)
def test_results_as_tuples_are_asked_for_in_vain(shop, config):
    expected = generate(load(str(shop.engine), dtype="float32", device="cpu"), "abc", max_new_tokens=8)
    folder = base(settings(**config))(shop).model
    engine = load(folder, dtype="float32", device="cpu")
    assert generate(engine, "abc", max_new_tokens=8).token_ids == expected.token_ids


@pytest.mark.parametrize("value", [None, 5, [5], [], [5, 7], -1, 10**6])
def test_ends_that_are_numbers_are_taken(shop, value):
    engine = load(ends(value)(shop).model, dtype="float32", device="cpu")
    assert engine.end_tokens() >= {5} if value in (5, [5], [5, 7]) else engine.end_tokens() >= {23}


def test_quantised_weights_may_be_whole_numbers(shop):
    folder = Path(kind_of_weight(PROJECTION, torch.uint8)(shop).model)
    with pytest.raises(MedusaError, match="of kind U8"):
        check_weights(folder)
    change_json(folder / CONFIG, quantization_config={"quant_method": "bitsandbytes"})
    check_weights(folder)
