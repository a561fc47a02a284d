"""``reproduce``: the experiments of the paper, measured on the embedded model or on one of yours."""

from __future__ import annotations

import argparse

from medusa_core.cli.flags import add_settings
from medusa_core.config import LoadConfig
from medusa_core.experiments import experiment_names, is_simulated, load_experiment
from medusa_core.experiments.settings import RunSettings

SHIPPED = "shipped"


def register(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("reproduce", help="the experiments of the paper", description=__doc__)
    experiments = parser.add_subparsers(dest="experiment", required=True, metavar="EXPERIMENT")
    for name in experiment_names():
        module = load_experiment(name)
        one = experiments.add_parser(name, help=module.TITLE, description=module.__doc__)
        add_settings(one, module.Settings)
        if not is_simulated(module):
            _add_flags_of_runs(one)
            add_settings(one, RunSettings)
            add_settings(one, LoadConfig)
            one.set_defaults(**module.DEFAULTS)
        _add_output_flags(one)
        one.set_defaults(run="medusa_core.cli.reproduce:run")
    _add_all(experiments)


def _add_all(experiments: argparse._SubParsersAction) -> None:
    parser = experiments.add_parser("all", help="all that the project states, measured on this machine")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--store", action="store_true", help="keep the records in assets/measured")
    where.add_argument("--into", metavar="FOLDER", help="keep them in another folder")
    parser.add_argument("--again", action="store_true", help="renew records of this engine too")
    parser.add_argument("--train", action="store_true", help="also those that train the heads they compare")
    parser.add_argument("--quick", action="store_true", help="with --into: a smoke run of each")
    add_settings(parser, LoadConfig)
    parser.set_defaults(run="medusa_core.cli.reproduce_all:run")


def _add_flags_of_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prompts", action="append", metavar="KIND=FILE.jsonl",
        help=f"repeatable; KIND={SHIPPED} is a kind of the page's examples (default: assets/held_out.json)",
    )  # fmt: skip
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="prompts left out at a file's start")
    parser.add_argument("--limit", type=int, metavar="N", help="prompts of each kind (default: %(default)s)")
    parser.add_argument(
        "--data-root", default=".", help="folder that names of prompt and text files start at"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run: few points, short texts, one round"
    )


def _add_output_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="FILE", help="write the record to this file")
    parser.add_argument(
        "--store", action="store_true", help="write it where page and tables read it: assets/measured"
    )
    parser.add_argument("--again", action="store_true", help="with --store: renew this engine's record too")
    parser.add_argument("--json", action="store_true", help="print the record as JSON as the last line")
