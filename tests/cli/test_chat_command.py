"""The chat command: what it prints, its own commands, and what does not end it."""

from __future__ import annotations

import pytest
import torch
from chats import CHATML, ask

from medusa_core import Conversation
from medusa_core.checkpoints.names import HEADS_FOLDER
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.drafters.medusa.files import save_heads
from medusa_core.loading.load import load_engine


@pytest.fixture
def chat_folder(engine_for, tmp_path):
    """The chat engine as files."""

    def write(template):
        engine = engine_for(template)
        engine.target.model.save_pretrained(tmp_path)
        engine.tokenizer.save_pretrained(tmp_path)
        save_heads(medusa_draft(engine).heads, tmp_path / HEADS_FOLDER, "tiny", torch.float32)
        return tmp_path

    return write


@pytest.fixture
def talk(command):
    """Pipe lines into the command; returns exit code, standard output and standard error."""

    def call(folder, lines, *flags):
        argv = ["chat", "--model", folder, "--dtype", "float32", "--max-new-tokens", "20", *flags]
        return command(argv, typed=lines)

    return call


def test_the_command_streams_replies_with_marks_and_figures(talk, chat_folder):
    folder = chat_folder(CHATML)
    code, out, err = talk(folder, "Hi\nWhy\n")
    assert code == 0
    engine = load_engine(LoadConfig(model=str(folder), dtype="float32"))
    conversation = Conversation(engine)
    config = GenerationConfig.of(max_new_tokens=20)
    replies = [ask(conversation, text, config) for text in ("Hi", "Why")]
    plain = "".join(reply.summary.text + "\n" for reply in replies)
    _, unmarked, _ = talk(folder, "Hi\nWhy\n", "--marks", "none")
    assert unmarked == plain
    assert len(out) > len(plain)
    for reply in replies:
        figures = (
            f"{len(reply.summary.token_ids)} tokens in {reply.summary.steps} steps: "
            f"{reply.summary.tokens_per_step:.2f} a step, ",
            f"{reply.reused} of {len(reply.prompt)} prompt tokens reused",
        )
        assert all(part in err for part in figures)
    assert replies[1].reused > 0
    assert "cut by --max-new-tokens 20" in err


def test_the_commands_of_the_chat(talk, chat_folder):
    lines = "/system\tBe kind.\nHi\n/stats\n/reset\n/stats\n/system\n/dance\n\nWhy\n/quit now\nNever read\n"
    code, _, err = talk(chat_folder(CHATML), lines, "--marks", "none")
    assert code == 0
    assert "system prompt: Be kind." in err
    assert "replies: 1, 20 tokens in" in err
    assert "2 messages" in err
    assert "the conversation is forgotten" in err
    assert "0 messages, 0 tokens in the cache, the context holds 512" in err
    assert "there is no command /dance: use /reset" in err
    assert err.count("prompt tokens reused") == 2
    assert "Traceback" not in err


def test_a_base_model_says_that_it_continues(talk, chat_folder):
    code, out, err = talk(chat_folder(None), "Once upon\n")
    assert code == 0
    assert "no chat template: it continues the text" in err
    assert out.strip()


def test_a_full_context_is_told(talk, chat_folder):
    lines = "".join(f"{'many words ' * 12}{number}\n" for number in range(4))
    code, _, err = talk(chat_folder(CHATML), lines, "--max-new-tokens", "60")
    assert code == 0
    assert "note: the context is full, the oldest 2 messages were dropped" in err
