"""What ``generate`` does. Its flags are in ``commands/generate``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Any

from tqdm import tqdm

from medusa_core.cli.commands.generate import BATCH, MARKS
from medusa_core.cli.flags import MOST_TEXTS, check_output_file, check_output_folder, read_run_settings
from medusa_core.cli.load import headline, load_for_run
from medusa_core.config import GenerationConfig, whole_numbers
from medusa_core.decoding import check_prompt
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError, counted
from medusa_core.evaluation.prompt_results import decode_lines, in_order
from medusa_core.evaluation.prompts import prompt_lines
from medusa_core.longrun.folder import TEXT
from medusa_core.longrun.memory import run_memory
from medusa_core.longrun.run import SavedRun, saved_run
from medusa_core.text.streamed_text import StreamedText, TextSpan
from medusa_core.trace.builder import TraceBuilder, write_trace
from medusa_core.words import bytes_words

LONG = 4096  # runs of so many tokens or more state their memory before they begin
Ended = tuple[dict[str, Any], KeyboardInterrupt | None]  # its record, and what stopped it


def run(args: argparse.Namespace) -> None:
    config = read_run_settings(args)
    _check_flags(args)
    if args.prompts is not None:
        _run_file(args, config)
        return
    engine, config, notes = load_for_run(args, config)
    prompt = _prompt_ids(args, engine)
    output, stopped = (_run_saved if args.save is not None else _run_one)(args, engine, prompt, config, notes)
    if args.json:
        print(json.dumps(output, ensure_ascii=False))
    if stopped is not None:
        raise stopped


def _run_one(
    args: argparse.Namespace, engine: Engine, prompt: list[int], config: GenerationConfig, notes: list[str]
) -> Ended:
    if config.max_new_tokens > LONG:
        check_prompt(prompt, engine.target)
        memory = run_memory(engine, len(prompt), config)
        print(memory.words(), file=sys.stderr)
        memory.require()
    # A builder keeps every step in memory, so there is one only where a trace was asked for.
    builder = TraceBuilder(engine, config, prompt) if args.trace is not None else None
    summary = engine.summary(config)
    printer = TextPrinter(engine, config.stop, args.marks)
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
    end, context = output["finish_reason"], ""
    if end == "context":
        fix = engine.target.context_fix
        more = f": load the model with {fix} to go on" if fix else ""
        context = f" ({engine.target.context_words}{more})"
    printer.finish(output["text"])
    print(
        f"{counted(output['new_tokens'], 'token')} in {counted(output['steps'], 'step')}: "
        f"{output['tokens_per_step']:.2f} a step, "
        f"{output['tokens_per_second']:,.0f} tokens/s, finished by {end}{context}",
        file=sys.stderr,
    )
    if builder is not None:
        write_trace(builder.ended(), Path(args.trace))
    return output | {"distinct": summary.distinct()}, stopped


def _check_flags(args: argparse.Namespace) -> None:
    """Raise MedusaError for flags that do not fit together, or files that cannot be written."""
    given, several = (args.prompt is not None) + (args.prompt_ids is not None), args.prompts is not None
    for wrong, words in (
        (several and given, "give either a prompt or --prompts, a file of them"),
        (
            several and args.save is not None,
            "--save keeps one run, --prompts makes several: decode that prompt alone",
        ),
        (
            several and args.trace is not None,
            "--trace writes one run, --prompts makes several: decode that prompt alone",
        ),
        (
            not several and args.batch is not None,
            "--batch says how many of --prompts are decoded at once: name a file of prompts",
        ),
        (
            not several and given != 1,
            "give either a prompt in quotes or --prompt-ids (or a file with --prompts): "
            'generate "Once upon a time"',
        ),
        (
            args.save is not None and args.trace is not None,
            "--trace holds every step in memory, --save is for long runs: leave one of them out",
        ),
    ):
        if wrong:
            raise MedusaError(words)
    if args.save is not None:
        check_output_folder(args.save, "--save")
    if args.trace is not None:
        check_output_file(args.trace, "--trace")


def _prompt_ids(args: argparse.Namespace, engine: Engine) -> list[int]:
    if args.prompt_ids is None:
        return engine.encode(sys.stdin.read() if args.prompt == "-" else args.prompt)
    ids = whole_numbers(args.prompt_ids, "prompt_ids")
    check_prompt(ids, engine.target)
    return ids


class TextPrinter:
    """Prints text as it comes; holds back what could be the start of a stop string."""

    def __init__(self, engine: Engine, stop: tuple[str, ...], marks: str) -> None:
        if marks == "auto":
            marks = "color" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else "brackets"
        self._open, self._close = MARKS[marks]
        self._text = StreamedText(engine.decode_text, stop)

    def step(self, tokens: list[int], drafted: list[bool]) -> None:
        """Take one step's tokens and which of them were drafted: all but the root."""
        self._print(self._text.add(tokens, drafted))

    def finish(self, text: str) -> None:
        """Print the rest of the run's text and end the line."""
        self._print(self._text.rest(text))
        print(flush=True)

    def _print(self, pieces: list[TextSpan]) -> None:
        for piece in pieces:
            sys.stdout.write(f"{self._open}{piece.text}{self._close}" if piece.drafted else piece.text)
        sys.stdout.flush()


def _run_file(args: argparse.Namespace, config: GenerationConfig) -> None:
    """Decode the prompts of a file, several at once. Raises MedusaError, also when a prompt failed."""
    size = BATCH if args.batch is None else args.batch
    if not 1 <= size <= MOST_TEXTS:
        raise MedusaError(f"--batch is {size}: give 1 to {MOST_TEXTS} texts at once")
    lines = [line for _, line in prompt_lines(Path(args.prompts))]
    engine, config, notes = load_for_run(args, config)
    engine.require_tokenizer()
    print(headline(engine, config), *notes, sep="\n", file=sys.stderr)
    begun, results = perf_counter(), []
    for number, result in enumerate(in_order(decode_lines(engine, lines, config, size)), start=1):
        results.append(result)
        if args.json:
            print(result.line(), flush=True)
        else:
            print(f"--- {number} of {len(lines)} ---", result.words(), sep="\n", flush=True)
    seconds = perf_counter() - begun
    outputs = [result.output for result in results if result.output is not None]
    failed = len(results) - len(outputs)
    if not outputs:
        raise MedusaError(f"none of {counted(failed, 'prompt')} could be decoded: {results[0].error}")
    tokens = sum(output["new_tokens"] for output in outputs)
    words = f"{counted(tokens, 'token')} after {counted(len(outputs), 'prompt')} in {seconds:.1f} s: "
    words += f"{tokens / seconds:,.0f} tokens/s"
    print(words, file=sys.stderr)
    if failed:
        first = next(result.error for result in results if result.output is None)
        raise MedusaError(f"{counted(failed, 'prompt')} of {len(results)} failed, the first one so: {first}")


def _run_saved(
    args: argparse.Namespace, engine: Engine, prompt: list[int], config: GenerationConfig, notes: list[str]
) -> Ended:
    """Begin the run in its folder, or go on with it. Raises MedusaError."""
    with saved_run(engine, prompt, config, Path(args.save)) as run:
        lines = [headline(engine, run.config), *notes, run.memory.words(), *run.notes]
        if run.known and run.end is None:
            lines.append(f"going on after {run.known:,} tokens in {args.save}")
        if run.end is not None:
            lines.append(
                f"complete already in {args.save}, nothing is decoded; the figures are those of its run"
            )
        print(*lines, sep="\n", file=sys.stderr)
        stopped: KeyboardInterrupt | None = None
        try:
            _follow(run)
        except KeyboardInterrupt as stop:
            stopped = stop
            run.stop()
            words = f"stopped at {len(run.tokens):,} tokens: the same command goes on from {args.save}"
            print(words, file=sys.stderr)
        print(_said(run, args.save), file=sys.stderr)
        return run.result(), stopped


def _follow(run: SavedRun) -> None:
    total, at = run.config.max_new_tokens, run.known
    bar = tqdm(total=total, initial=at, unit="token", file=sys.stderr, disable=None, dynamic_ncols=True)
    with bar, closing(run.steps()) as steps:
        for step in steps:
            bar.set_postfix_str(_rates(run), refresh=False)
            bar.update(len(step.emitted))


def _rates(run: SavedRun) -> str:
    alpha = run.totals.alpha
    words = f"{run.totals.tokens_per_step:.2f} a step"
    return words if alpha is None else f"{words}, α {alpha:.2f}"


def _said(run: SavedRun, folder: str) -> str:
    """The result of a saved run in words: speed, memory, and where the text lies."""
    totals, end = run.totals, run.end
    words = f"{totals.tokens:,} tokens in {totals.steps:,} steps: {_rates(run)}, "
    words += f"{totals.tokens_per_second:,.0f} tokens/s"
    if end is None:
        return words
    memory = end.memory
    return (
        f"{words}, finished by {end.finish_reason}; the text is in {Path(folder) / TEXT}\n"
        f"memory: at most {bytes_words(memory.estimated)} estimated, {bytes_words(memory.measured)} measured"
    )
