"""A tiny model some of whose words are markup, and what the app has besides: prompts and a recorded run."""

from __future__ import annotations

import json
from pathlib import Path

import tiny
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from medusa_core.checkpoints.names import HEADS_FOLDER, TREE_NAME
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters.medusa.files import save_heads
from medusa_core.loading.load import load_engine

HOSTILE = ["<script>document.title='broken'</script>", "${1+1}", "{{value}}", "<img src=x onerror=alert(2)>"]
CONTEXT = 2048
TEMPLATE_FILE = "chat_template.jinja"
TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}"  # no end of turn: replies have full length
PROMPTS = [
    {
        "kind": "Story",
        "penalty": 1.2,
        "penalty_window": 64,
        "prompts": [{"label": "a fox", "text": 'a fox </script> said "go"\nand went'}],
    },
    {"kind": "Booking", "prompts": [{"label": "a table", "text": "User: a table please\nAssistant:"}]},
]


def write_model(path: Path) -> Path:
    """A folder as `load_engine` wants it, with heads, a tree and a chat template."""
    model = tiny.build_model(tiny.tiny_config(2, max_position_embeddings=CONTEXT), seed=1)
    words = [*HOSTILE, *(f" {letter * 3}" for letter in tiny.LETTERS)][: tiny.VOCABULARY]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[5]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.Fuse()
    model.save_pretrained(path)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(path)
    (path / TEMPLATE_FILE).write_text(TEMPLATE, "utf-8")
    heads = path / HEADS_FOLDER
    save_heads(tiny.fitted_heads(model), heads, "tiny")
    (heads / TREE_NAME).write_text(json.dumps([[0], [1], [0, 0], [0, 1], [0, 0, 0]]), "utf-8")
    return path


def write_assets(path: Path, load: LoadConfig) -> Path:
    """Example prompts and one recorded run, in the form they are shipped in."""
    (path / "prompts.json").write_text(json.dumps(PROMPTS), "utf-8")
    config = GenerationConfig.of(acceptance="typical", temperature=0.7, max_new_tokens=24)
    trace = tiny.recorded(load_engine(load), config, [0, 7, 1]).finish()
    (path / "traces").mkdir()
    (path / "traces" / "1-hostile.json").write_text(json.dumps(trace), "utf-8")
    return path
