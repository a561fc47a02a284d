"""The required answers to bad prompts and flags; ``cause`` and ``fix`` are regular expressions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BadText:
    """A prompt, with what the message says."""

    text: str
    cause: str
    fix: str


PROMPTS: dict[str, BadText] = {
    "empty": BadText("", "is empty", "write"),
    "too long": BadText("abc" * 100, "300 tokens, the context holds 96", "shorten"),
    "an escape sequence": BadText("\x1b[31mab", r"control character U\+001B at position 1", "remove it"),
    "delete": BadText("a\x7fb", r"control character U\+007F at position 2", "remove it"),
    "a control character of the upper half": BadText(
        "a\x9bb", r"character U\+009B at position 2", "remove it"
    ),
    "half an emoji": BadText(
        "abc\ud83d", r"has half a character \(U\+D83D\) at position 4", "paste it again"
    ),
    "a byte that is not UTF-8": BadText(
        "a\udcffb", r"half a character \(U\+DCFF\) at position 2", "as UTF-8"
    ),
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
    "an id that is a word": BadFlags([*IDS, "1,x"], "--prompt-ids is '1,x'", "write numbers with commas"),
    "more ids than context": BadFlags(
        [*IDS, ",".join("1" * 200)], "200 tokens, the context holds 96", "shorten"
    ),
    "a temperature that is none": BadFlags(
        _generate("--temperature", "nan"), "--temperature is nan", "give a number"
    ),
    "a negative temperature": BadFlags(_generate("--temperature", "-1"), "the smallest is 0.0", "raise it"),
    "ε of zero": BadFlags(_generate("--epsilon", "0"), "--epsilon is 0.0, the smallest is 0.01", "raise it"),
    "a huge budget": BadFlags(
        _generate("--max-new-tokens", "9999999999"), "--max-new-tokens is 9999999999, the largest is 1000000",
        "lower"
    ),
    "a seed that is a word": BadFlags(
        _generate("--seed", "x"), "--seed: invalid int value", "see .*--help"
    ),
    "an unknown flag": BadFlags(_generate("--odd"), "unrecognized arguments: --odd", "see .*--help"),
    "a tree that is nowhere": BadFlags(
        _generate("--tree", "/nowhere.json"), "cannot read the tree .*No such file", "check the path"
    ),
    "a folder for a tree": BadFlags(
        _generate("--tree", "{engine}"), "the tree .* is a folder", r"name a \.json file"
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
    "accuracies of another file": BadFlags(
        _search("--accuracies", "{engine}/config.json"), "holds no list of numbers", "anew with calibrate"
    ),
    "a folder for prompts": BadFlags(
        ["bench", "--prompts", "{engine}", "--model", "{engine}"], "cannot read the prompts .*Is a directory",
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
    "heads over a file": BadFlags(
        [*CONVERT[:2], "{out}/file", *CONVERT[2:]], "DST .*file is a file", "name a folder"
    ),
    "heads over a model": BadFlags(
        [*CONVERT[:2], "{engine}", *CONVERT[2:], "--force"], "holds a model, which heads must not replace",
        "name another folder",
    ),
    "fresh heads over a file": BadFlags(
        ["heads", "init", "--model", "{engine}", "--out", "{out}/file"], "is a file", "name a folder"
    ),
    "a run over a file": BadFlags([*TRAIN, "--out", "{out}/file"], "since .*file is a file", "name a folder"),
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
