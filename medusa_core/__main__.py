"""``python -m medusa_core``, and the command ``medusa`` of an installed package."""

import gc
import sys
from typing import NoReturn

from medusa_core.cli.main import main


def run() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    code = main()
    gc.freeze()  # a last collection would look at all objects of torch, which end with the process anyway
    sys.exit(code)


if __name__ == "__main__":
    run()
