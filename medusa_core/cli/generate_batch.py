"""What ``generate --prompts`` does: the prompts of a file, several at once, with their results in order."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

from medusa_core.cli.commands.generate import BATCH
from medusa_core.cli.run_setup import headline, load_for_run
from medusa_core.config import GenerationConfig
from medusa_core.errors import MedusaError, counted
from medusa_core.evaluation.prompt_results import Result, decode_lines, in_order
from medusa_core.evaluation.prompts import prompt_lines


def run_file(args: argparse.Namespace, config: GenerationConfig) -> None:
    """Decode the prompts of a file and print each result. Raises MedusaError, also when all prompts fail."""
    _require_one_source(args)
    size = BATCH if args.batch is None else args.batch
    if size < 1:
        raise MedusaError(f"--batch is {size}, the smallest is 1: raise it")
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
    _say_total(results, perf_counter() - begun)


def _require_one_source(args: argparse.Namespace) -> None:
    """Raise MedusaError for what a file of prompts leaves no room for."""
    if args.prompt is not None or args.prompt_ids is not None:
        raise MedusaError("give either a prompt or --prompts, a file of them")
    if args.save is not None:
        raise MedusaError("--save keeps one run, --prompts makes several: decode that prompt alone")
    if args.trace is not None:
        raise MedusaError("--trace writes one run, --prompts makes several: decode that prompt alone")


def _say_total(results: list[Result], seconds: float) -> None:
    outputs = [result.output for result in results if result.output is not None]
    failed = len(results) - len(outputs)
    if not outputs:
        raise MedusaError(f"none of {counted(failed, 'prompt')} could be decoded: {results[0].error}")
    tokens = sum(output["new_tokens"] for output in outputs)
    words = f"{counted(tokens, 'token')} after {counted(len(outputs), 'prompt')} in {seconds:.1f} s: "
    words += f"{tokens / seconds:.0f} tokens/s"
    print(words + (f"; {failed} failed" if failed else ""), file=sys.stderr)
