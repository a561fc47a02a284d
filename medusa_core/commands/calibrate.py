"""``calibrate``: measure how often each guess of each head is right, and write it as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tqdm import tqdm

from medusa_core.calibration import calibrate_heads
from medusa_core.config import LoadConfig
from medusa_core.engine import load_engine
from medusa_core.errors import MedusaError
from medusa_core.flags import add_settings, read_settings
from medusa_core.prompts import add_prompt_flags, chosen_prompts


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command's flags."""
    parser = subparsers.add_parser("calibrate", help="measure the heads' accuracies", description=__doc__)
    add_settings(parser, LoadConfig)
    add_prompt_flags(parser)
    parser.add_argument("--max-new-tokens", type=int, default=128, help="tokens a prompt (default: 128)")
    parser.add_argument("--out", default="accuracies.json", help="file to write (default: accuracies.json)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Measure and write. Raises MedusaError for bad input."""
    engine = load_engine(read_settings(LoadConfig, args))
    if engine.heads is None:
        raise MedusaError(f"{engine.info.base} has no heads to calibrate: name them with --heads")
    prompts = chosen_prompts(args, engine)
    with tqdm(total=len(prompts), unit="prompt", file=sys.stderr) as bar:
        found = calibrate_heads(engine, prompts, args.max_new_tokens, progress=bar.update)
    record = {"base": engine.info.base, "positions": found.positions, "accuracies": found.shares}
    Path(args.out).write_text(json.dumps(record) + "\n", encoding="utf-8")
    print(f"{args.out}: first guesses right {[row[0] for row in found.shares]}")
