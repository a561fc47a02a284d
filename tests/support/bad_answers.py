"""How the tests of bad input check an answer: one line, its cause and its fix, and exit code 2."""

from __future__ import annotations

import re
from typing import Protocol

CPU = ("--dtype", "float32", "--device", "cpu")
LONGEST = 300  # characters of a message that a person reads, "error: " included


class Expected(Protocol):
    """A row of a table: regular expressions."""

    cause: str
    fix: str


def says(message: str, row: Expected) -> None:
    """Assert that a message is one line that names cause and fix of the row."""
    # The page starts with a capital letter, the command line with the words before the colon.
    assert re.search(row.cause, message, re.IGNORECASE), message
    assert re.search(row.fix, message), message
    assert "\n" not in message.rstrip("\n")
    assert len(message.rstrip("\n")) <= LONGEST


def refused(result: tuple[int, str, str], row: Expected) -> None:
    """Assert exit code 2, nothing on standard output and one line on standard error."""
    code, out, err = result
    assert (code, out) == (2, ""), err
    assert err.startswith("error: ")
    says(err, row)


def told(err: str) -> str:
    """The first error in a chat's output."""
    return next(line for line in err.splitlines() if line.startswith("error: "))


def training(shop, *flags: str) -> list[str]:
    """The command that trains heads for a moment."""
    text = shop.engine / "text.jsonl"
    return ["train", "medusa1", "--data", text, "--out", shop.out / "run", "--tokens", 256, "--batch-tokens",
            128, "--sequence-length", 32, "--heads", 3, "--warmup-steps", 1, *flags]  # fmt: skip
