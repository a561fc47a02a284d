"""``python -m tools.make_model``: pretrain, or resume an interrupted run."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from pathlib import Path

from medusa_core.cli.commands.train import follow
from medusa_core.cli.flags import add_settings, read_settings
from medusa_core.cli.main import OneLineParser, exit_code_of
from medusa_core.library_messages import quiet_libraries
from medusa_core.training.folder_lock import locked_folder
from medusa_core.training.loop import Progress
from tools.make_model.pretrain import pretrain
from tools.make_model.settings import PretrainConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Pretrain by the flags; return the exit code."""
    parser = OneLineParser(prog="python -m tools.make_model", description="Pretrain a small Llama.")
    add_settings(parser, PretrainConfig)
    args = parser.parse_args(argv)

    def run() -> None:
        quiet_libraries()
        config = read_settings(PretrainConfig, args)
        follow(_alone(config), config.out)

    return exit_code_of(run)


def _alone(config: PretrainConfig) -> Generator[Progress, None, None]:
    with locked_folder(Path(config.out)):
        yield from pretrain(config)


if __name__ == "__main__":
    sys.exit(main())
