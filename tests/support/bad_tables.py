"""The required answers to bad input: for each row its cause and its fix, as the one line says them.

``cause`` and ``fix`` are regular expressions. ``spared`` are the commands that a row does not affect,
since they do not read what is damaged.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import torch
from bad_input import (
    ADAPTER,
    ADAPTER_CONFIG,
    CONFIG,
    HEADS,
    WEIGHTS,
    Named,
    Workshop,
    adapted,
    another_model,
    base,
    change_json,
    clip,
    code_in_heads,
    cut,
    garble,
    heads,
    mamba,
    no_tokenizer,
    not_numbers,
    other_heads,
    pickled_base,
    settings,
    sharded,
    t5,
    text,
    without_tensor,
)  # fmt: skip

LM_HEAD = frozenset({"heads init", "convert"})  # commands that read no more of a base than its LM head
AGAIN = "fetch or save it again"


@dataclass(frozen=True)
class Row:
    """Bad files: how to build them, what the message says, and which commands succeed."""

    build: Callable[[Workshop], Named]
    cause: str
    fix: str
    spared: frozenset[str] = frozenset()
    only_runs_fail: bool = False  # the files load, and the fault shows in a run


TOKENIZER = "cannot load the tokenizer in .*model: "
NO_MODEL = "cannot load a causal language model from .*model: "

BASES: dict[str, Row] = {
    "weights cut off": Row(
        base(lambda _, folder: cut(folder / WEIGHTS, 0.5)),
        NO_MODEL + r"model\.safetensors is damaged or cut off",
        AGAIN,
    ),
    "weights with a garbled header": Row(
        base(lambda _, folder: garble(folder / WEIGHTS)), NO_MODEL + r"model\.safetensors is damaged", AGAIN
    ),
    "no weights": Row(
        base(lambda _, folder: (folder / WEIGHTS).unlink()), NO_MODEL + r"it has no model\.safetensors", AGAIN
    ),
    "weights in a pickle with code": Row(
        base(pickled_base), NO_MODEL + r"pytorch_model\.bin holds code \(\w+\.mkdir\), which was not run",
        "use one saved as tensors alone",
    ),
    "weights for another program": Row(
        base(lambda _, folder: (folder / WEIGHTS).rename(folder / "model.gguf")), "for llama.cpp",
        "fetch the model's safetensors",
    ),
    "a missing tensor": Row(
        base(without_tensor), r"lack model\.layers\.1\.mlp\.up_proj", "fetch or save", LM_HEAD
    ),
    "weights that are not numbers": Row(
        base(not_numbers), "the model's output is (nan|not a number)", "fetch them again",
        LM_HEAD | {"train"}, only_runs_fail=True,
    ),
    "another vocabulary": Row(
        base(settings(vocab_size=30)), r"is \[24, 32\] in the weights, \[30, 32\] by config", "one source"
    ),
    "another hidden size": Row(
        base(settings(hidden_size=64, head_dim=None)), r"\[\d+.*\] in the weights, \[.*64.*\] by config",
        "one source",
    ),
    "a million layers": Row(
        base(settings(num_hidden_layers=10**6)), "names 1000000 layers, models have 1 to 1000", AGAIN
    ),
    "a config that is not JSON": Row(base(text(CONFIG, "{")), r"config\.json is not JSON", AGAIN),
    "a config that is a list": Row(base(text(CONFIG, "[]")), r"config\.json is not a JSON object", AGAIN),
    "a config without a type": Row(base(text(CONFIG, "{}")), "names no model_type", AGAIN),
    "a model of unknown type": Row(
        base(settings(model_type="hypernet")), "model_type 'hypernet', which transformers .* does not know",
        "upgrade transformers, or use a decoder such as Llama",
    ),
    "a model with code of its own": Row(
        base(settings(model_type="hypernet", auto_map={"AutoConfig": "code.Config"})),
        "Python code of its own",
        "--trust-remote-code",
    ),
    "a size that is a word": Row(base(settings(hidden_size="big")), "hidden_size.* expected int", AGAIN),
    "a model without attention heads": Row(
        base(settings(num_attention_heads=0, head_dim=None)), r"config\.json makes no sense", AGAIN
    ),
    "an unknown activation": Row(
        base(settings(hidden_act="odd")), "'odd' is missing or unknown", "check its"
    ),
    "positions scaled by less than nothing": Row(
        base(settings(rope_parameters={"rope_type": "linear", "factor": -4.0, "rope_theta": 1e4})),
        NO_MODEL + r"config\.json: rope_parameters\.factor is -4\.0", "must be a number from 1 on",
    ),
    "no config": Row(
        base(lambda _, folder: (folder / CONFIG).unlink()), r"has no config\.json", "name another"
    ),
    "an empty folder": Row(lambda shop: Named(str(shop.out)), r"has no config\.json", "name another"),
    "a file for a folder": Row(
        lambda shop: Named(str(shop.engine / WEIGHTS)), "is a file", "name the folder that it lies in"
    ),
    "no such folder": Row(lambda shop: Named(str(shop.out / "gone")), "there is no folder", "check the path"),
    "a strange name": Row(lambda _: Named("a b"), "not the name of a repository", "write owner/name"),
    "not in the cache, offline": Row(
        lambda _: Named("somebody/model"), "HF_HUB_OFFLINE is set and it is not in the cache", "unset it"
    ),
    "a missing shard": Row(
        base(sharded()), r"names model-00002-of-00002\.safetensors, which is not there", "fetch or save"
    ),
    "an index of shards without a map": Row(base(sharded({})), "has no weight_map", "fetch or save"),
    "an index of shards with a path": Row(
        base(sharded({"metadata": {}, "weight_map": {"lm_head.weight": "../x.safetensors"}})),
        r"names \.\./x\.safetensors, which is not there", "fetch or save",
    ),
    "more numbers than there is memory": Row(
        base(settings(hidden_size=10**6, intermediate_size=10**6)), "needs about .* TB of memory, .* free",
        "smaller model|--", LM_HEAD | {"train", "fit"},
    ),
    "no tokenizer": Row(
        base(no_tokenizer), "has no tokenizer", "beside the weights", LM_HEAD | {"heads check"},
        only_runs_fail=True
    ),
    "a tokenizer that is not JSON": Row(
        base(text("tokenizer.json", "{")), TOKENIZER + r".*tokenizer\.json is not JSON", AGAIN, LM_HEAD
    ),
    "a tokenizer that is a list": Row(
        base(text("tokenizer.json", "[]")), TOKENIZER + ".*is not a JSON object", AGAIN, LM_HEAD
    ),
    "a tokenizer without anything": Row(
        base(text("tokenizer.json", "{}")), TOKENIZER, "fetch or save the tokenizer's", LM_HEAD
    ),
    "a tokenizer without its vocabulary": Row(
        base(lambda _, folder: (folder / "tokenizer.json").unlink()), TOKENIZER + r"tokenizer\.json, its voc",
        "fetch or save", LM_HEAD,
    ),
    "an encoder–decoder": Row(another_model(t5), "t5 is an encoder–decoder", "use a decoder-only"),
    "a recurrent model": Row(
        another_model(mamba), "mamba keeps a recurrent state", "use a model with attention",
        LM_HEAD | {"train", "fit"},
    ),
    "a vision model": Row(
        another_model(clip), "clip is not a causal language", "use a decoder such as",
        frozenset({"bench"}),  # it misses Medusa's weights first
    ),
}  # fmt: skip

HEADS_CUT = r"cannot read the heads in .*medusa_lm_head\.safetensors is damaged or cut off"
ADAPTER_MISFIT = "the adapter in .* does not fit the base model"
TRAINED_WITH = "give --model the base these heads were trained with"
NO_ADAPTER = frozenset({"convert", "train"})  # commands that read heads without their adapter
BESIDE = frozenset({"convert", "train"})  # commands that do not use the files stored with the heads

HEAD_ROWS: dict[str, Row] = {
    "heads cut off": Row(heads(lambda _, folder: cut(folder / HEADS, 0.5)), HEADS_CUT, AGAIN),
    "heads in a pickle with code": Row(
        heads(code_in_heads(torch_file=True)), r"medusa_lm_head\.pt holds code \(\w+\.mkdir\), which was not",
        "use one saved as tensors alone",
    ),
    "heads in a plain pickle": Row(
        heads(code_in_heads(torch_file=False)), "holds more than tensors, perhaps code", "as safetensors"
    ),
    "heads for another vocabulary": Row(
        heads(other_heads(vocab_size=30)), "know 30 tokens, the base model 24", "give --heads made for",
        frozenset({"convert"}),
    ),
    "heads for another hidden size": Row(
        heads(other_heads(hidden_size=64)), "are 64 wide, the base model 32", "give --heads made for",
        frozenset({"convert"}),
    ),
    "heads with NaN": Row(
        heads(other_heads(lambda state: state["1.0.linear.weight"].fill_(torch.nan))), "NaN or infinity",
        "fetch, convert or train it again", frozenset({"convert"}),
    ),
    "heads without one tensor": Row(
        heads(other_heads(lambda state: state.pop("1.1.weight"))), r"lacks 1\.1\.weight", "again"
    ),
    "a folder without heads": Row(
        lambda shop: Named(str(shop.engine), str(shop.out)), "holds no heads", "name a folder with "
    ),
    "a file for a folder of heads": Row(
        lambda shop: Named(str(shop.engine), str(shop.engine / "heads" / HEADS)), "is a file",
        "name the folder"
    ),
    "no such heads": Row(
        lambda shop: Named(str(shop.engine), str(shop.out / "gone")), "there is no folder", "check the path"
    ),
    "heads with a config that is not JSON": Row(heads(text(CONFIG, "{")), r"config\.json is not JSON", AGAIN),
    "an adapter cut off": Row(
        adapted(lambda folder: cut(folder / ADAPTER, 0.5)),
        r"cannot read .*adapter_model\.safetensors is",
        AGAIN, NO_ADAPTER,
    ),
    "an adapter that is missing": Row(
        adapted(lambda folder: (folder / ADAPTER).unlink()), r"but no adapter_model\.safetensors", AGAIN,
        NO_ADAPTER,
    ),
    "an adapter for another width": Row(adapted(hidden_size=64), ADAPTER_MISFIT, TRAINED_WITH, NO_ADAPTER),
    "an adapter for more layers": Row(
        adapted(num_hidden_layers=3), ADAPTER_MISFIT + ", it has no place in the base for", TRAINED_WITH,
        NO_ADAPTER,
    ),
    "an adapter for fewer layers": Row(
        adapted(num_hidden_layers=1), ADAPTER_MISFIT + ", it lacks", TRAINED_WITH, NO_ADAPTER
    ),
    "an adapter for other parts": Row(
        adapted(lambda folder: change_json(folder / ADAPTER_CONFIG, target_modules=["odd"])),
        ADAPTER_MISFIT + ".*odd", TRAINED_WITH, NO_ADAPTER,
    ),
    "an adapter's config that is not JSON": Row(
        adapted(lambda folder: (folder / ADAPTER_CONFIG).write_text("{")), r"_config\.json is not JSON",
        AGAIN,
        NO_ADAPTER,
    ),
    "an adapter of an unknown kind": Row(
        adapted(lambda folder: change_json(folder / ADAPTER_CONFIG, peft_type="ODD")),
        r"adapter_config\.json is not the config of a LoRA", AGAIN, NO_ADAPTER,
    ),
    "a tree that is not JSON": Row(
        heads(text("tree.json", "[[0]")), r"tree\.json is not JSON", "write rank tuples", BESIDE
    ),
    "a tree of too many nodes": Row(
        heads(text("tree.json", json.dumps([[rank] for rank in range(300)]))),
        r"tree\.json .*301 nodes, largest size is 256", "lower the node budget", BESIDE,
    ),
    "a tree for more heads": Row(
        heads(text("tree.json", json.dumps([[0] * depth for depth in range(1, 6)]))),
        "has depth 4, there are 3 heads", "use a shallower tree", BESIDE | {"heads check"},
        only_runs_fail=True,
    ),
    "accuracies that are not JSON": Row(
        heads(text("accuracies.json", "{")), r"accuracies\.json as JSON \(.*column 2\)",
        "anew with calibrate", BESIDE,
    ),
    "accuracies that are not numbers": Row(
        heads(text("accuracies.json", "[[NaN]]")), "outside 0 to 1", "give shares", BESIDE
    ),
    "accuracies of more heads": Row(
        heads(text("accuracies.json", json.dumps([[0.5]] * 7))), "of 7 heads, there are 3", "calibrate these",
        BESIDE,
    ),
}  # fmt: skip
