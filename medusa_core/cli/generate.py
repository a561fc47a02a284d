"""What ``generate`` does. Its flags are in ``commands/generate``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TextIO

from medusa_core.acceptance import rule_names
from medusa_core.cli.commands.generate import MARKS
from medusa_core.cli.flags import check_output_file, read_run_settings
from medusa_core.cli.generate_batch import run_file
from medusa_core.cli.generate_saved import check_save, run_saved
from medusa_core.cli.run_setup import headline, load_for_run
from medusa_core.config import AUTO_METHOD, GenerationConfig
from medusa_core.decoding import check_prompt
from medusa_core.drafters import method_names, methods_in_words
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError, counted, name_fix
from medusa_core.longrun.memory import run_memory
from medusa_core.text.streamed_text import StreamedText, TextSpan
from medusa_core.trace.builder import TraceBuilder, write_trace

LONG = 4096  # tokens of a run from which its memory is told before it begins


def run(args: argparse.Namespace) -> None:
    """Decode and print. Raises MedusaError for bad input."""
    config = generation_config(args)
    if args.prompts is not None:
        run_file(args, config)
        return
    _check_flags(args)
    engine, config, notes = load_for_run(args, config)
    prompt = _prompt_ids(args, engine)
    if args.save is not None:
        run_saved(args, engine, prompt, config, notes)
        return
    if config.max_new_tokens > LONG:
        _tell_memory(engine, prompt, config)
    # A trace keeps every step, which a long text without one can do without.
    builder = TraceBuilder(engine, config, prompt) if args.trace is not None else None
    summary = engine.summary(config)
    printer = TextPrinter(engine, config.stop, args.marks, sys.stdout)
    steps = engine.stream(prompt, config)
    stopped: KeyboardInterrupt | None = None
    try:
        for step in steps:
            summary.add(step)
            if builder is not None:
                builder.add(step)
            if not step.index:  # said once the run has begun, so that an error stands alone
                print(headline(engine, config), *notes, sep="\n", file=sys.stderr)
            printer.step(step.emitted, [node > 0 for node in step.verdict.path])
    except KeyboardInterrupt as stop:
        steps.close()
        stopped = stop
    except MedusaError:
        if summary.steps:
            print(flush=True)  # the error has a line of its own
        raise
    output = summary.record()
    printer.finish(output["text"])
    print(
        f"{counted(output['new_tokens'], 'token')} in {counted(output['steps'], 'step')}: "
        f"{output['tokens_per_step']:.2f} a step, "
        f"{output['tokens_per_second']:.0f} tokens/s, finished by {output['finish_reason']}"
        + (f" ({_context_words(engine)})" if output["finish_reason"] == "context" else ""),
        file=sys.stderr,
    )
    if builder is not None:
        write_trace(builder.packed(), Path(args.trace))
    if args.json:
        print(json.dumps(output | {"distinct": summary.distinct()}, ensure_ascii=False))
    if stopped is not None:
        raise stopped


def _context_words(engine: Engine) -> str:
    fix = engine.target.context_fix
    return engine.target.context_words + (f": load the model with {fix} to go on" if fix else "")


def _check_flags(args: argparse.Namespace) -> None:
    """Raise MedusaError for flags of one run that do not fit together, or files that cannot be written."""
    if args.batch is not None:
        raise MedusaError("--batch says how many of --prompts are decoded at once: name a file of prompts")
    if (args.prompt is None) == (args.prompt_ids is None):
        raise MedusaError(
            "give either a prompt in quotes or --prompt-ids (or a file with --prompts): "
            'generate "Once upon a time"'
        )
    if args.save is not None:
        check_save(args)
    if args.trace is not None:
        check_output_file(args.trace, "--trace")


def _tell_memory(engine: Engine, prompt: list[int], config: GenerationConfig) -> None:
    """Say what a long run takes. Raises MedusaError where it does not fit."""
    check_prompt(prompt, engine.target)
    memory = run_memory(engine, len(prompt), config)
    print(memory.words(), file=sys.stderr)
    memory.require()


def generation_config(args: argparse.Namespace) -> GenerationConfig:
    """The run's settings from the flags. Raises MedusaError for unknown names and values out of range."""
    config = read_run_settings(args)
    for name, value, known, words in (
        ("method", config.method, [AUTO_METHOD, *method_names()], f"{AUTO_METHOD}, {methods_in_words()}"),
        ("acceptance", config.acceptance, rule_names(), ", ".join(rule_names())),
    ):
        if value not in known:
            raise MedusaError(f"--{name} is {value!r:.30}: {name_fix(value, known, words)}")
    return config


def _prompt_ids(args: argparse.Namespace, engine: Engine) -> list[int]:
    if args.prompt_ids is None:
        return engine.encode(sys.stdin.read() if args.prompt == "-" else args.prompt)
    try:
        ids = [int(part) for part in args.prompt_ids.split(",")]
    except ValueError as error:
        raise MedusaError(f"--prompt-ids is {args.prompt_ids!r}: write ids with commas, 1,2,3") from error
    check_prompt(ids, engine.target)
    return ids


class TextPrinter:
    """Writes text as it comes; holds back what could be the start of a stop string."""

    def __init__(self, engine: Engine, stop: tuple[str, ...], marks: str, out: TextIO) -> None:
        if marks == "auto":
            marks = "color" if out.isatty() and not os.environ.get("NO_COLOR") else "brackets"
        self._open, self._close = MARKS[marks]
        self._text = StreamedText(engine.decode_text, stop)
        self._out = out

    def step(self, tokens: list[int], drafted: list[bool]) -> None:
        """Take one step's tokens and which of them were drafted: all but the root."""
        self._write(self._text.add(tokens, drafted))

    def finish(self, text: str) -> None:
        """Write the rest of the run's text and end the line."""
        self._write(self._text.rest(text))
        print(file=self._out, flush=True)

    def _write(self, pieces: list[TextSpan]) -> None:
        for piece in pieces:
            self._out.write(f"{self._open}{piece.text}{self._close}" if piece.drafted else piece.text)
        self._out.flush()
