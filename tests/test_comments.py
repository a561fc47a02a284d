"""Comments are sentences or terms: none begins with a word that hangs on the line beside it."""

from __future__ import annotations

import re
import subprocess

import pytest
from paths import ROOT

FILES = "*.py", "*.js", "*.c", "*.h"
MOST = 20  # lines of a longer comment may begin so by chance
HANGING = re.compile(
    r"(?:#|//|/\*) *(?:of (?:the|a|it|what|which)|that|which|whose|what|those|for whose|behind) "
)


def hanging() -> list[str]:
    """Every such line of the repository, as FILE:LINE."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *FILES], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("the files are not in a git repository")
    return [
        f"{name}:{number}"
        for name in filter(None, listed.stdout.split("\0"))
        if (ROOT / name).is_file() and name != "tests/test_comments.py"
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), start=1)
        if HANGING.search(line)
    ]


def test_few_comments_hang_on_nothing():
    found = hanging()
    assert len(found) <= MOST, found


@pytest.mark.parametrize(
    "line", ["most = 3  # of the rows", "x = 1; // which is kept", "/* that it takes */"]
)
def test_the_check_sees_one(line):
    assert HANGING.search(line)
