"""Where the project's files lie, wherever the test lies."""

from __future__ import annotations

from pathlib import Path

import medusa_core

ROOT = Path(medusa_core.__file__).resolve().parents[1]
BESIDE = ROOT.parent / "shared"  # data that some tests compare with and skip without
