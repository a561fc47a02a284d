"""An error that comes after a part of the text has a line of its own."""

from __future__ import annotations

import sys

from medusa_core import MedusaError
from medusa_core.engine import Engine


def test_the_text_so_far_ends_its_line_before_the_error(command, engine_folder, monkeypatch):
    stream = Engine.stream

    def broken(self, *arguments, **options):
        for step in stream(self, *arguments, **options):
            if step.index == 2:
                raise MedusaError("the memory is used up")
            yield step

    monkeypatch.setattr(Engine, "stream", broken)
    monkeypatch.setattr(sys, "stderr", sys.stdout)  # as on a terminal
    flags = ["--model", engine_folder, "--dtype", "float32", "--marks", "none"]
    code, out, _ = command(["generate", "abc", *flags])
    assert code == 2
    assert out.splitlines()[-1] == "error: the memory is used up"
