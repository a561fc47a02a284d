"""``generate``: decode one prompt; text streams to the terminal with accepted drafts marked."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TextIO

from medusa_core.acceptance import rule_names
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.detokenize import TextStream
from medusa_core.drafters import drafter_names
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.flags import add_settings, read_settings
from medusa_core.loading import load_engine
from medusa_core.stopping import text_before_stop
from medusa_core.trace import TraceBuilder, write_trace

MARKS = {"color": ("\033[4;34m", "\033[0m"), "brackets": ("[", "]"), "none": ("", "")}


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command's flags."""
    parser = subparsers.add_parser("generate", help="decode a prompt", description=__doc__)
    parser.add_argument("prompt", nargs="?", help='text to continue; "-" reads standard input')
    parser.add_argument("--prompt-ids", help="token ids instead of text: 1,2,3")
    add_settings(parser, LoadConfig)
    add_settings(parser, GenerationConfig)
    parser.add_argument("--trace", help="write the run as a trace file")
    parser.add_argument(
        "--json", action="store_true", help="print the trace's output object as the last line"
    )
    add_marks_flag(parser)
    parser.set_defaults(run=run)


def add_marks_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag that says how accepted drafts are marked."""
    parser.add_argument(
        "--marks",
        choices=("auto", *MARKS),
        default="auto",
        help="how accepted drafts are marked; auto: color on a terminal, [brackets] elsewhere",
    )


def run(args: argparse.Namespace) -> None:
    """Decode and print. Raises MedusaError for bad input."""
    config = generation_config(args)
    if (args.prompt is None) == (args.prompt_ids is None):
        raise MedusaError('give either a prompt in quotes or --prompt-ids: generate "Once upon a time"')
    engine = load_engine(read_settings(LoadConfig, args))
    prompt = _prompt_ids(args, engine)
    print(headline(engine, config), file=sys.stderr)
    builder = TraceBuilder(engine, config, prompt)
    printer = TextPrinter(engine, config.stop, args.marks, sys.stdout)
    steps = engine.stream(prompt, config)
    try:
        for step in steps:
            builder.add(step)
            heads = [step.tree.heads[node] for node in step.verdict.path]
            printer.step(step.emitted, heads)
    except KeyboardInterrupt:
        steps.close()
    trace = builder.finish()
    printer.finish(trace["output"]["text"])
    output = trace["output"]
    print(
        f"{output['new_tokens']} tokens in {output['steps']} steps: {output['tokens_per_step']:.2f} a step, "
        f"{output['tokens_per_second']:.0f} tokens/s, finished by {output['finish_reason']}",
        file=sys.stderr,
    )
    if args.trace:
        write_trace(trace, Path(args.trace))
    if args.json:
        print(json.dumps(output, ensure_ascii=False))


def generation_config(args: argparse.Namespace) -> GenerationConfig:
    """The run's settings from the flags. Raises MedusaError for unknown names and values out of range."""
    config = read_settings(GenerationConfig, args, stop=tuple(args.stop or ()))
    for name, value, known in (
        ("method", config.method, drafter_names()),
        ("acceptance", config.acceptance, rule_names()),
    ):
        if value not in known:
            raise MedusaError(f"--{name} is {value!r}: use one of {', '.join(known)}")
    return config


def _prompt_ids(args: argparse.Namespace, engine: Engine) -> list[int]:
    if args.prompt_ids is None:
        return engine.encode(sys.stdin.read() if args.prompt == "-" else args.prompt)
    try:
        return [int(part) for part in args.prompt_ids.split(",")]
    except ValueError as error:
        raise MedusaError(f"--prompt-ids is {args.prompt_ids!r}: write ids with commas, 1,2,3") from error


def headline(engine: Engine, config: GenerationConfig) -> str:
    info = engine.info
    loaded = f"{info.name} · {info.dtype} on {info.device} ({info.dtype_reason})"
    return f"{loaded} · {config.method}, {config.acceptance}"


class TextPrinter:
    """Writes text as it comes; holds back what could be the start of a stop string."""

    def __init__(self, engine: Engine, stop: tuple[str, ...], marks: str, out: TextIO) -> None:
        if marks == "auto":
            marks = "color" if out.isatty() and "NO_COLOR" not in os.environ else "brackets"
        self._open, self._close = MARKS[marks]
        self._stream = TextStream(engine.decode_text)
        self._stop = stop
        self._hold = max((len(text) for text in stop), default=1) - 1
        self._pieces: list[tuple[str, bool]] = []  # not yet written: text, whether it was drafted
        self._text = ""
        self._out = out
        self._printed = 0

    def step(self, tokens: list[int], heads: list[int]) -> None:
        """Take one step's tokens and the heads they came from (0: the root)."""
        new = [(self._stream.push(t), h > 0) for t, h in zip(tokens, heads, strict=False)]
        self._pieces += new
        self._text += "".join(text for text, _ in new)
        sure = len(self._text) - self._hold
        self._write(min(sure, len(text_before_stop(self._text, self._stop))) - self._printed)

    def finish(self, text: str) -> None:
        """Write the rest of the run's text and end the line."""
        self._write(len(text) - self._printed)
        print(file=self._out, flush=True)

    def _write(self, characters: int) -> None:
        while characters > 0 and self._pieces:
            text, drafted = self._pieces.pop(0)
            if len(text) > characters:
                self._pieces.insert(0, (text[characters:], drafted))
                text = text[:characters]
            characters -= len(text)
            self._printed += len(text)
            self._out.write(f"{self._open}{text}{self._close}" if drafted and text else text)
        self._out.flush()
