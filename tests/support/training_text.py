"""Tokenizers, conversations and files for the tests of the training text."""

from __future__ import annotations

import functools
import json

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from medusa_core.checkpoints.locate import embedded_model
from medusa_core.training.examples import END_OF_TEXT, Example, Message

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Trims, has no generation prompt, closes turns with end-of-text and begins with its own token.
SPECIAL = ["<|im_start|>", "<|im_end|>", "<s>"]


@functools.cache
def embedded_tokenizer():
    return AutoTokenizer.from_pretrained(embedded_model())


@functools.cache
def templated(template, **names):
    """The embedded model's tokenizer with another chat template and a few more special tokens."""
    raw = Tokenizer.from_file(str(embedded_model() / "tokenizer.json"))
    names = {"eos_token": END_OF_TEXT} | names
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, chat_template=template, **names)
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL})
    return tokenizer


def chat(*turns, place="line 1 of chat.jsonl"):
    """A conversation of user, assistant, user, ... or of (role, content) pairs."""
    pairs = [
        turn if isinstance(turn, tuple) else (("user", "assistant")[i % 2], turn)
        for i, turn in enumerate(turns)
    ]
    return Example(None, tuple(Message(*pair) for pair in pairs), paired=False, place=place)


def plain(text):
    return Example(text, (), paired=False, place="line 1 of a.txt")


def write_lines(file, *lines):
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def stories(count):
    return [f"Story {number} is about the number {number * 7}. It ends well." for number in range(count)]
