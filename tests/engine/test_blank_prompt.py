"""White space is a prompt in Python and on the command line; the page and a chat ask for words."""

from __future__ import annotations

import pytest
from bad_answers import CPU

from medusa_core import decode, generate, load


@pytest.fixture(scope="module")
def engine(trained_base):
    """A tokenizer of bytes, which has tokens for white space."""
    return load(str(trained_base), dtype="float32", device="cpu")


@pytest.mark.sample(1)
@pytest.mark.parametrize("prompt", [" ", "\n", " \t ", "\r\n\r\n"])
def test_white_space_is_a_prompt_in_python(engine, prompt):
    found = generate(engine, prompt, method="none", max_new_tokens=4, trace=True)
    assert found.trace.prompt.token_ids == engine.tokenize(prompt)
    assert len(found.token_ids) == 4
    assert next(decode(engine, prompt, method="none")).emitted


def test_it_is_one_on_the_command_line(command, trained_base):
    code, out, _ = command(
        ["generate", " ", "--model", trained_base, "--method", "none", "--max-new-tokens", 4, *CPU]
    )
    assert (code, bool(out)) == (0, True)
