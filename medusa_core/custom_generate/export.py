"""A ``custom_generate`` folder for the hub: the decode loop and all it stands on, without the project.

transformers loads ``custom_generate/generate.py`` of a folder or repository and the files that it imports
from beside it, so the modules are copied under flat names and their imports rewritten:
``medusa_core.acceptance.match`` becomes ``acceptance_match.py``. Knows names of modules, nothing about what
is in them.
"""

from __future__ import annotations

import re
from pathlib import Path

from medusa_core.errors import MedusaError

ENTRY = "medusa_core.custom_generate.generate"
FOLDER = "custom_generate"  # as transformers calls it
_PACKAGE = "medusa_core"
_PROJECT = Path(__file__).parents[1]
_IMPORT = re.compile(rf"^from ({_PACKAGE}(?:\.\w+)*) import (.+)$", re.MULTILINE)
_FOR_ANNOTATIONS = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t].*\n|\n)*", re.MULTILINE)
# Only Python files travel with generate.py, so what modules read beside themselves becomes one, by name.
_TEXTS = {
    'resources.files("medusa_core.trees").joinpath("published.json").read_text(encoding="utf-8")': (
        "PUBLISHED_TREES", "trees/published.json",
    ),
    'Path(__file__).with_suffix(".h").read_text(encoding="utf-8")': ("STRUCTURES", "llama/structures.h"),
}  # fmt: skip
_REQUIREMENTS = """torch>=2.9.1
transformers>=5.24
huggingface-hub>=2.4
safetensors>=0.8
pydantic>=2.12
psutil>=7.0
"""
_GENERATE = '''"""Medusa decoding for ``model.generate(..., custom_generate=…, trust_remote_code=True)``."""

from .custom_generate_generate import generate

__all__ = ["generate"]
'''
_README = """---
license: apache-2.0
tags:
- custom_generate
- medusa
- speculative-decoding
---

# Medusa decoding for transformers

```python
from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer

tokenizer = AutoTokenizer.from_pretrained("lmsys/vicuna-7b-v1.3")
model = AutoModelForCausalLM.from_pretrained("lmsys/vicuna-7b-v1.3", device_map="auto")
inputs = tokenizer("Why is the sky blue?", return_tensors="pt").to(model.device)
ids = model.generate(
    **inputs,
    max_new_tokens=200,
    streamer=TextStreamer(tokenizer),
    custom_generate="THIS FOLDER OR REPOSITORY",
    trust_remote_code=True,
    medusa_heads="FasterDecoding/medusa-vicuna-7b-v1.3",
)
```

The output is that of `generate` without it: greedy decoding token for token in float32, sampling given the
seed. Small heads draft a tree of tokens and one forward pass of the model verifies it (Cai et al., 2024,
arXiv 2401.10774).

| argument | meaning |
|---|---|
| `medusa_heads` | folder or hub name of heads for the model |
| `medusa_tree` | a published tree, `cartesian-4x2x1`, `dynamic-16`, a JSON file or a list of rank tuples |
| `medusa_acceptance` | `match` (exact), or `typical` with sampling: longer paths, close to the model |
| `medusa_epsilon`, `medusa_delta` | the bar of typical acceptance |
| `medusa_penalty`, `medusa_penalty_window` | contextual penalty of the last tokens; 1 is off |

Heads that come with an adapter of their base (Medusa-2) want it in the model: install peft and call
`model.load_adapter("FOLDER OF THE HEADS")` first.

Everything else is `generate`'s own: lengths, temperature, top-k, top-p, penalties, stopping criteria, stop
strings, a streamer. Batches, beams, padding, a cache and returned scores are refused with a message.
The code is Apache-2.0 and was exported by Medusa Decoding Explorer.
"""


def export_custom_generate(folder: Path) -> list[Path]:
    """Write the folder and return its files. Raises MedusaError when it is not empty or cannot be written."""
    contents = {
        "README.md": _README,
        f"{FOLDER}/requirements.txt": _REQUIREMENTS,
        f"{FOLDER}/generate.py": _GENERATE,
        f"{FOLDER}/texts.py": _texts(),
    }
    contents |= {f"{FOLDER}/{_flat(name)}.py": _rewritten(source) for name, source in _modules().items()}
    try:
        if folder.exists() and any(folder.iterdir()):
            raise MedusaError(f"{folder} is not empty: name a new folder")
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise MedusaError(f"cannot write {folder} ({error.strerror}): name another folder") from error
    return [folder / name for name in contents]


def _modules() -> dict[str, str]:
    """Sources of ENTRY and of all modules of the project that it reaches, by name."""
    found: dict[str, str] = {}
    waiting = [ENTRY]
    while waiting:
        if (name := waiting.pop()) in found:
            continue
        if (file := _file(name)) is None:
            raise ModuleNotFoundError(f"{name} is no module of the project")
        found[name] = file.read_text(encoding="utf-8")
        # Imports for annotations alone are indented, and left out.
        waiting += [_imported(*line) for line in _IMPORT.findall(found[name])]
    return found


def _imported(module: str, names: str) -> str:
    """The module that a line reads: a package's, where it is "from package import module"."""
    inside = f"{module}.{names}"
    return module if _file(inside) is None else inside


def _file(name: str) -> Path | None:
    """The file of a module of the project, None for what is no module."""
    place = _PROJECT.joinpath(*name.split(".")[1:])
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if file.is_file():
            return file
    return None


def _flat(name: str) -> str:
    return "_".join(name.split(".")[1:])


def _rewritten(source: str) -> str:
    """A module's source with imports of its neighbours in the flat folder."""

    def beside(match: re.Match[str]) -> str:
        module, names = match[1], match[2]
        if (imported := _imported(module, names)) != module:
            file = _flat(imported)
            # transformers looks for "from .file import" to know which files to copy.
            return f"from .{file} import __name__ as _  # noqa: F401\nfrom . import {file} as {names}"
        return f"from .{_flat(module)} import {names}"

    text = _IMPORT.sub(beside, _FOR_ANNOTATIONS.sub("", source))
    for reading, (name, _) in _TEXTS.items():
        if reading in text:
            text = text.replace(reading, name).replace(
                "\nimport ", f"\nfrom .texts import {name}\nimport ", 1
            )
    return text


def _texts() -> str:
    texts = ((name, (_PROJECT / file).read_text(encoding="utf-8")) for name, file in _TEXTS.values())
    return "\n".join(f'{name} = r"""{text}"""' for name, text in texts) + "\n"
