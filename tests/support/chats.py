"""Chat templates of the common kinds, a tokenizer for them, and a tiny model with its vocabulary."""

from __future__ import annotations

import string

import tiny
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

CHARACTERS = string.ascii_letters + string.digits + " \n:.,[]/"
SPECIAL = ["</s>", "<|start|>", "<|end|>", "<bos>"]

LINES = (
    "{% for m in messages %}{{ 'User: ' if m.role == 'user' else 'Assistant: ' }}{{ m.content }}\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
CHATML = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
VICUNA = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }} {% elif m.role == 'user' %}"
    "USER: {{ m.content }} {% else %}ASSISTANT: {{ m.content }}</s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
INST = (
    "{{ '<bos>' }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m.role == 'user' %}[INST] {{ m.content | trim }} [/INST]"
    "{% else %} {{ m.content | trim }}</s>{% endif %}{% endfor %}"
)
ONLY_START = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
FORGETFUL = (  # it cuts all answers but the last question's to three letters, as templates cut old thoughts
    "{% for m in messages %}<|start|>{{ m.role }}\n"
    "{{ m.content[:3] if m.role == 'assistant' else m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
TEMPLATES = {"lines": LINES, "chatml": CHATML, "vicuna": VICUNA, "inst": INST, "only_start": ONLY_START}


def chat_tokenizer(template: str | None) -> PreTrainedTokenizerFast:
    """A token for each character, and four special ones."""
    vocabulary = {text: number for number, text in enumerate([*SPECIAL, "?", *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")
    fast.add_special_tokens({"additional_special_tokens": SPECIAL[1:]})
    fast.chat_template = template
    return fast


def chat_model() -> PreTrainedModel:
    """Random weights for that tokenizer."""
    size = len(SPECIAL) + 1 + len(CHARACTERS)
    return tiny.build_model(tiny.tiny_config(2, vocab_size=size, max_position_embeddings=512), seed=4)


def ask(conversation, text, config):
    """A whole reply."""
    reply = conversation.reply(text, config)
    for _ in reply:
        pass
    return reply
