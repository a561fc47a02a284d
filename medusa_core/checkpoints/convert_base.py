"""A base as one GGUF file for llama.cpp, which has no place for heads."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from medusa_core.checkpoints.base import load_base
from medusa_core.checkpoints.gguf_file import Q8_0, GgufModel
from medusa_core.checkpoints.locate import embedded_model, locate_model
from medusa_core.checkpoints.names import EMBEDDED
from medusa_core.errors import MedusaError, reason_of

GGUF = "gguf"
SUFFIX = ".gguf"
KINDS = {"bf16": "BF16", "f16": "F16", "f32": "F32", "q8_0": Q8_0}  # by what a flag says


def convert_to_gguf(source: str, target: Path, kind: str, *, force: bool = False) -> None:
    """Write the base ``source``, a folder or hub name, to the file ``target``, whole or not at all.

    ``kind`` is one of ``KINDS``. Raises MedusaError for a base that llama.cpp would compute otherwise, and
    for a file that is there or cannot be written.
    """
    if target.suffix != SUFFIX:
        raise MedusaError(f"DST {target} is no name of a GGUF file: let it end in {SUFFIX}")
    if target.exists() and not (force and target.is_file()):
        raise MedusaError(f"DST {target} is there already: name another file, or use --force")
    folder = embedded_model() if source == EMBEDDED else locate_model(source)
    model = GgufModel.of(load_base(folder, dtype="auto"), KINDS[kind])
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as staging:
            new = Path(staging) / target.name
            model.write(new)
            os.replace(new, target)
    except OSError as error:
        raise MedusaError(f"cannot write {target} ({reason_of(error)}): name another file") from error
