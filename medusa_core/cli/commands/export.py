"""``export``: a run as one HTML file, or a custom_generate folder for transformers."""

from __future__ import annotations

import argparse
from pathlib import Path

from medusa_core.cli.flags import check_output_file
from medusa_core.errors import MedusaError
from medusa_core.words import bytes_words


def register(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "export", help="write a run as one HTML file, or a folder for another program", description=__doc__
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    folder = actions.add_parser(
        "custom-generate",
        help="Medusa for model.generate(..., custom_generate=FOLDER)",
        description="Write the decode loop as a custom_generate folder, for this disk or the hub. Heads that "
        "come with an adapter of their base want it in the model: call model.load_adapter(HEADS) first.",
    )
    folder.add_argument("folder", type=Path, help="where to; it must be new or empty")
    folder.set_defaults(run=f"{__name__}:write_folder")
    replay = actions.add_parser(
        "replay",
        help="one HTML file that replays a run in any browser",
        description="Write a trace (generate --trace TRACE.json) as one HTML file with text, tree, mask and "
        "the reason for each verdict. It needs no server and no network: open it from the disk, send it by "
        "mail, or put it as index.html into a Hugging Face Space with sdk: static or on any web server.",
    )
    replay.add_argument("trace", metavar="TRACE.json", help="the trace file of a run, of any version")
    replay.add_argument("out", metavar="OUT.html", help="the file to write")
    replay.set_defaults(run=f"{__name__}:write_page")


def write_folder(args: argparse.Namespace) -> None:
    """Write the folder. Raises MedusaError when that cannot be done."""
    from medusa_core.custom_generate.export import export_custom_generate

    written = export_custom_generate(args.folder)
    print(f"{len(written)} files in {args.folder}; use it as")
    print(
        f'model.generate(ids, custom_generate="{args.folder}", trust_remote_code=True, medusa_heads="HEADS")'
    )


def write_page(args: argparse.Namespace) -> None:
    """Write the file. Raises MedusaError for a broken trace and for a file that cannot be written."""
    from medusa_core.trace.format import read_trace
    from medusa_core.trace.replay.page import write_replay

    out = check_output_file(args.out, "OUT.html")
    trace = read_trace(Path(args.trace))
    if out.exists() and out.samefile(args.trace):
        raise MedusaError(f"{out} is the trace itself: give the page another name, such as run.html")
    write_replay(trace, out)
    print(f"{out} replays the run in any browser: {bytes_words(out.stat().st_size)}, no server, no network")
