"""What bad input must be answered with: for each row its cause and its fix, as the one line says them.

``cause`` and ``fix`` are regular expressions. ``spared`` are the commands to which a row is no fault, since
they do not read what is damaged.
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
    """Bad files: how to build them, what the message says, and who does not mind."""

    build: Callable[[Workshop], Named]
    cause: str
    fix: str
    spared: frozenset[str] = frozenset()
    only_runs_fail: bool = False  # the files load, and what is wrong shows in a run


TOKENIZER = "cannot load the tokenizer in .*model: "
NO_MODEL = "cannot load a causal language model from .*model: "

BASES: dict[str, Row] = {
    "weights cut off": Row(
        base(lambda _, folder: cut(folder / WEIGHTS, 0.5)),
        NO_MODEL + r"model\.safetensors is damaged or cut off",
        AGAIN,
    ),
    "weights empty": Row(
        base(lambda _, folder: cut(folder / WEIGHTS, 0)), NO_MODEL + r"model\.safetensors is damaged", AGAIN
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
    "weights that are no numbers": Row(
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
    "more layers than weights": Row(
        base(settings(num_hidden_layers=3)), r"lack model\.layers\.2", "fetch or save", LM_HEAD
    ),
    "a config that is no JSON": Row(base(text(CONFIG, "{")), r"config\.json is not JSON", AGAIN),
    "a config that is a list": Row(base(text(CONFIG, "[]")), r"config\.json is not a JSON object", AGAIN),
    "a config that is no text": Row(base(text(CONFIG, b"\xff\xfe")), "is not JSON .*no UTF-8 text", AGAIN),
    "a config without a type": Row(base(text(CONFIG, "{}")), "names no model_type", AGAIN),
    "a model of unknown type": Row(
        base(settings(model_type="hypernet")), "model_type 'hypernet', which transformers .* does not know",
        "upgrade transformers, or use a decoder such as Llama",
    ),
    "a type that is no name": Row(base(settings(model_type=["llama"])), r"model_type \['llama'\]", "upgrade"),
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
    "no config": Row(
        base(lambda _, folder: (folder / CONFIG).unlink()), r"has no config\.json", "name another"
    ),
    "an empty folder": Row(lambda shop: Named(str(shop.out)), r"has no config\.json", "name another"),
    "a file for a folder": Row(
        lambda shop: Named(str(shop.engine / WEIGHTS)), "is a file", "name the folder that it lies in"
    ),
    "no such folder": Row(lambda shop: Named(str(shop.out / "gone")), "there is no folder", "check the path"),
    "no name of a repository": Row(lambda _: Named("a b"), "no name of a repository", "write owner/name"),
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
        base(settings(hidden_size=10**6, intermediate_size=10**6)), "needs about .* GB of memory, .* free",
        "smaller model|--", LM_HEAD | {"train", "fit"},
    ),
    "no tokenizer": Row(
        base(no_tokenizer), "has no tokenizer", "beside the weights", LM_HEAD | {"heads check"},
        only_runs_fail=True
    ),
    "a tokenizer that is no JSON": Row(
        base(text("tokenizer.json", "{")), TOKENIZER + r".*tokenizer\.json is not JSON", AGAIN, LM_HEAD
    ),
    "a tokenizer that is a list": Row(
        base(text("tokenizer.json", "[]")), TOKENIZER + ".*is not a JSON object", AGAIN, LM_HEAD
    ),
    "a tokenizer without anything": Row(
        base(text("tokenizer.json", "{}")), TOKENIZER, "fetch or save the tokenizer's", LM_HEAD
    ),
    "a tokenizer's config that is a list": Row(
        base(text("tokenizer_config.json", "[]")), TOKENIZER + ".*is not a JSON object", AGAIN, LM_HEAD
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
    "a vision model": Row(another_model(clip), "clip is no causal language model", "use a decoder such as"),
}  # fmt: skip

HEADS_CUT = r"cannot read the heads in .*medusa_lm_head\.safetensors is damaged or cut off"
ADAPTER_MISFIT = "the adapter in .* does not fit the base model"
TRAINED_WITH = "give --model the base these heads were trained with"
NO_ADAPTER = frozenset({"convert", "train"})  # commands that read heads without their adapter
BESIDE = frozenset({"convert", "train"})  # commands that do not use what lies beside the heads

HEAD_ROWS: dict[str, Row] = {
    "heads cut off": Row(heads(lambda _, folder: cut(folder / HEADS, 0.5)), HEADS_CUT, AGAIN),
    "heads empty": Row(heads(lambda _, folder: cut(folder / HEADS, 0)), HEADS_CUT, AGAIN),
    "heads with a garbled header": Row(heads(lambda _, folder: garble(folder / HEADS)), HEADS_CUT, AGAIN),
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
        heads(other_heads(lambda state: state["1.0.linear.weight"].fill_(torch.nan))), "hold NaN or infinity",
        "fetch, convert or train them again", frozenset({"convert"}),
    ),
    "heads with infinity": Row(
        heads(other_heads(lambda state: state["2.1.weight"][0].fill_(-torch.inf))), "hold NaN or infinity",
        "fetch, convert or train them again", frozenset({"convert"}),
    ),
    "heads without one tensor": Row(
        heads(other_heads(lambda state: state.pop("1.1.weight"))), r"lacks 1\.1\.weight", "again"
    ),
    "a folder without heads": Row(
        lambda shop: Named(str(shop.engine), str(shop.out)), "holds no heads", "name a folder with medusa_lm"
    ),
    "a file for a folder of heads": Row(
        lambda shop: Named(str(shop.engine), str(shop.engine / "heads" / HEADS)), "is a file",
        "name the folder"
    ),
    "no such heads": Row(
        lambda shop: Named(str(shop.engine), str(shop.out / "gone")), "there is no folder", "check the path"
    ),
    "heads with a config that is no JSON": Row(heads(text(CONFIG, "{")), r"config\.json is not JSON", AGAIN),
    "heads with a config that is a list": Row(heads(text(CONFIG, "[]")), "is not a JSON object", AGAIN),
    "an adapter cut off": Row(
        adapted(lambda folder: cut(folder / ADAPTER, 0.5)),
        r"cannot read the adapter .*_model\.safetensors is",
        AGAIN, NO_ADAPTER,
    ),
    "an adapter with a garbled header": Row(
        adapted(lambda folder: garble(folder / ADAPTER)), "cannot read the adapter .* is damaged", AGAIN,
        NO_ADAPTER,
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
    "an adapter's config that is no JSON": Row(
        adapted(lambda folder: (folder / ADAPTER_CONFIG).write_text("{")), r"_config\.json is not JSON",
        AGAIN,
        NO_ADAPTER,
    ),
    "an adapter of an unknown kind": Row(
        adapted(lambda folder: change_json(folder / ADAPTER_CONFIG, peft_type="ODD")),
        r"adapter_config\.json is no config of a LoRA", AGAIN, NO_ADAPTER,
    ),
    "a tree that is no JSON": Row(
        heads(text("tree.json", "[[0]")), r"tree\.json is not JSON", "write rank tuples", BESIDE
    ),
    "a tree that is none": Row(
        heads(text("tree.json", "{}")), r"tree\.json holds no list of rank tuples", "write them as in", BESIDE
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
    "accuracies that are no JSON": Row(
        heads(text("accuracies.json", "{")), r"accuracies\.json as JSON \(.*line 1\)", "anew with calibrate",
        BESIDE
    ),
    "accuracies that are none": Row(
        heads(text("accuracies.json", "[1, 2]")), "holds no list of numbers", "anew with calibrate", BESIDE
    ),
    "accuracies that are percentages": Row(
        heads(text("accuracies.json", "[[50, 40]]")), "outside 0 to 1", "give shares", BESIDE
    ),
    "accuracies that are no numbers": Row(
        heads(text("accuracies.json", "[[NaN]]")), "outside 0 to 1", "give shares", BESIDE
    ),
    "accuracies of more heads": Row(
        heads(text("accuracies.json", json.dumps([[0.5]] * 7))), "of 7 heads, there are 3", "calibrate these",
        BESIDE,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class BadText:
    """A prompt, with what the message says."""

    text: str
    cause: str
    fix: str


PROMPTS: dict[str, BadText] = {
    "empty": BadText("", "is empty", "write"),
    "too long": BadText("abc" * 100, "300 tokens, the context holds 96", "shorten"),
    "a bell": BadText("ab\x07c", r"has the control character U\+0007 at position 3", "remove it"),
    "an escape sequence": BadText("\x1b[31mab", r"control character U\+001B at position 1", "remove it"),
    "a null": BadText("ab\0", r"control character U\+0000 at position 3", "remove it"),
    "delete": BadText("a\x7fb", r"control character U\+007F at position 2", "remove it"),
    "a control character of the upper half": BadText(
        "a\x9bb", r"character U\+009B at position 2", "remove it"
    ),
    "half an emoji": BadText(
        "abc\ud83d", r"has half a character \(U\+D83D\) at position 4", "paste it again"
    ),
    "a byte that is no UTF-8": BadText("a\udcffb", r"half a character \(U\+DCFF\) at position 2", "as UTF-8"),
    "a letter of another tokenizer": BadText("ab€", "tokenizer makes token 40 .* has 24", "put this model's"),
}


@dataclass(frozen=True)
class BadFlags:
    """A command line in which {engine} is the tiny engine's folder, {out} another one, {out}/file a file."""

    argv: list[str]
    cause: str
    fix: str


def _generate(*argv: str) -> list[str]:
    return ["generate", "abc", "--model", "{engine}", *argv]


def _search(*argv: str) -> list[str]:
    return ["tree", "search", *argv]


IDS = ["generate", "--model", "{engine}", "--prompt-ids"]
TRAIN = ["train", "medusa1", "--model", "{engine}", "--data", "{engine}/text.jsonl"]
CONVERT = ["convert", "{engine}/heads", "--to", "v1", "--model", "{engine}"]
CALIBRATE = ["calibrate", "--model", "{engine}"]

FLAGS: dict[str, BadFlags] = {
    "ids beyond the vocabulary": BadFlags(
        [*IDS, "3,24"], "from 3 to 24, the vocabulary from 0 to 23", "use ids"
    ),
    "a negative id": BadFlags(
        [*IDS[:-1], "--prompt-ids=-1"], "from -1 to -1, the vocabulary from 0", "use ids"
    ),
    "an id of twenty digits": BadFlags([*IDS, "9" * 20], "the vocabulary from 0 to 23", "use ids"),
    "an id that is no number": BadFlags([*IDS, "1,x"], "--prompt-ids is '1,x'", "write ids with commas"),
    "no ids": BadFlags([*IDS, ""], "--prompt-ids is ''", "write ids with commas"),
    "more ids than context": BadFlags(
        [*IDS, ",".join("1" * 200)], "200 tokens, the context holds 96", "shorten"
    ),
    "a temperature that is none": BadFlags(
        _generate("--temperature", "nan"), "temperature is nan", "raise it"
    ),
    "a negative temperature": BadFlags(_generate("--temperature", "-1"), "the smallest is 0.0", "raise it"),
    "endless heat": BadFlags(
        _generate("--temperature", "inf"), "temperature is inf, the largest is 2", "lower"
    ),
    "ε of zero": BadFlags(_generate("--epsilon", "0"), "epsilon is 0.0, the smallest is 0.01", "raise it"),
    "δ too large": BadFlags(_generate("--delta", "2"), "delta is 2.0, the largest is 1.0", "lower it"),
    "a huge budget": BadFlags(
        _generate("--max-new-tokens", "9999999999"), "max_new_tokens is 9999999999, the largest is 4096",
        "lower"
    ),
    "a seed that is no number": BadFlags(
        _generate("--seed", "x"), "--seed: invalid int value", "see .*--help"
    ),
    "a huge seed": BadFlags(_generate("--seed", "9" * 20), "seed is 9+, the largest is", "lower it"),
    "an unknown flag": BadFlags(_generate("--odd"), "unrecognized arguments: --odd", "see .*--help"),
    "a tree that is nowhere": BadFlags(
        _generate("--tree", "/nowhere.json"), "cannot read the tree .*No such file", "check the path"
    ),
    "a folder for a tree": BadFlags(
        _generate("--tree", "{engine}"), "no tree is called", "use one of mc_sim"
    ),
    "a tree of another kind of file": BadFlags(
        ["tree", "show", "{engine}/model.safetensors"], "is not JSON .*no UTF-8 text", "write rank tuples"
    ),
    "a tree of millions": BadFlags(
        ["tree", "show", "cartesian-99999x99999"], "has more than 256 nodes", "lower a width"
    ),
    "accuracies that are nowhere": BadFlags(
        _search("--accuracies", "/nowhere"), "cannot read accuracies from /nowhere .*No such file",
        "calibrate"
    ),
    "a folder for accuracies": BadFlags(
        _search("--accuracies", "{engine}"), "cannot read accuracies from .*Is a directory", "calibrate"
    ),
    "accuracies of another file": BadFlags(
        _search("--accuracies", "{engine}/config.json"), "holds no list of numbers", "anew with calibrate"
    ),
    "a folder for prompts": BadFlags(
        ["bench", "--prompts", "{engine}", "--model", "{engine}"], "cannot read the prompts .*Is a directory",
        "name a file",
    ),
    "prompts that are nowhere": BadFlags(
        ["bench", "--prompts", "/nowhere", "--model", "{engine}"], "cannot read the prompts .*No such file",
        "name a file",
    ),
    "all prompts left out": BadFlags(
        ["bench", "--skip", "999", "--model", "{engine}", "--prompts", "{engine}/text.jsonl"],
        "--skip 999 leaves no prompt", "lower it",
    ),
    "a trace in a folder's place": BadFlags(
        _generate("--trace", "{out}"), "--trace .* is a folder", "name a file"
    ),
    "a trace nowhere": BadFlags(
        _generate("--trace", "/nowhere/x"), "--trace .* no folder /nowhere", "make it"
    ),
    "figures in a folder's place": BadFlags(
        [*CALIBRATE, "--out", "{out}"], "--out .* is a folder", "name a file"
    ),
    "figures below a file": BadFlags(
        [*CALIBRATE, "--out", "{out}/file/x"], "there is no folder", "or name another"
    ),
    "heads over a file": BadFlags(
        [*CONVERT[:2], "{out}/file", *CONVERT[2:]], "DST .*file is a file", "name a folder"
    ),
    "heads below a file": BadFlags(
        [*CONVERT[:2], "{out}/file/x", *CONVERT[2:]], "cannot write to .*file", "name another folder"
    ),
    "heads over a model": BadFlags(
        [*CONVERT[:2], "{engine}", *CONVERT[2:], "--force"], "holds a model, which heads must not replace",
        "name another folder",
    ),
    "fresh heads over a file": BadFlags(
        ["heads", "init", "--model", "{engine}", "--out", "{out}/file"], "is a file", "name a folder"
    ),
    "a run over a file": BadFlags([*TRAIN, "--out", "{out}/file"], "since .*file is a file", "name a folder"),
    "a run below a file": BadFlags(
        [*TRAIN, "--out", "{out}/file/x"], "since .*file is a file", "name a folder"
    ),
    "a fit over a file": BadFlags(
        ["fit", "--plan", "--model", "{engine}", "--out", "{out}/file"], "since .*file is a file",
        "name a folder"
    ),
    "training text that is nowhere": BadFlags(
        [*TRAIN[:-1], "/nowhere", "--out", "{out}/run"], "there is no file or folder /nowhere",
        "check the name"
    ),
    "an export over a file": BadFlags(
        ["export", "custom-generate", "{out}/file"], "cannot write .*Not a directory", "name another folder"
    ),
    "a record below a file": BadFlags(
        ["reproduce", "table2", "--out", "{out}/file/x"], "since .*file is a file", "name a folder"
    ),
}  # fmt: skip
