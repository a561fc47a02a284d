"""Imports point down, figures need no torch, no bare except, no module too long to read."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("medusa_core", "ui")
LINES = 350

# Bottom first. A module may import what stands on a lower line, and its own package.
LAYERS = [
    ["medusa_core.errors", "medusa_core.data", "medusa_core.library_messages"],
    ["medusa_core.config", "medusa_core.files"],
    [
        "medusa_core.tree",
        "medusa_core.kv_cache",
        "medusa_core.sampling",
        "medusa_core.prompt_text",
        "medusa_core.stopping",
        "medusa_core.heads",
        "medusa_core.attention_masks",
    ],
    ["medusa_core.tree_search", "medusa_core.token_tree"],
    ["medusa_core.target", "medusa_core.checkpoints", "medusa_core.devices", "medusa_core.quantised"],
    ["medusa_core.shape", "medusa_core.weights"],
    ["medusa_core.memory"],
    ["medusa_core.lora"],
    ["medusa_core.peft_adapters"],
    ["medusa_core.adapters", "medusa_core.acceptance", "medusa_core.drafters"],
    ["medusa_core.decoding"],
    ["medusa_core.engine"],
    ["medusa_core.loading"],
    ["medusa_core.trace"],
    ["medusa_core"],  # everything not named above: command line, benchmark, training
    ["ui"],
]
HEAVY = {"torch", "transformers", "gradio", "accelerate", "medusa_core.engine", "medusa_core.loading"}
PAGE = {"gradio", "plotly", "ui"}


def python_files():
    """Every module of the project, tests left out."""
    return [ROOT / "app.py", *sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))]


FILES = python_files()
NAMES = [str(file.relative_to(ROOT)) for file in FILES]


def module_name(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(file): file for file in FILES}


@functools.cache
def imports_of(file):
    """Full names of what a file imports anywhere in it, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: write imports from the root, not relative"
            # "from package import name" may name a module or a thing in the package.
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                names.add(full if full in MODULES else node.module)
    return frozenset(names)


def is_in(name, package):
    return name == package or name.startswith(package + ".")


def layer_of(name):
    """(number of the layer, the entry that names it): the longest entry that fits."""
    fitting = [
        (entry, number) for number, layer in enumerate(LAYERS) for entry in layer if is_in(name, entry)
    ]
    entry, number = max(fitting, key=lambda item: len(item[0]))
    return number, entry


def test_every_layer_names_modules_that_exist():
    for entry in (entry for layer in LAYERS for entry in layer):
        assert entry in MODULES


@pytest.mark.parametrize("name", [name for name in MODULES if name != "app"])
def test_imports_point_down(name):
    number, entry = layer_of(name)
    for imported in imports_of(MODULES[name]):
        if not any(is_in(imported, package) for package in PACKAGES):
            continue
        other, other_entry = layer_of(imported)
        assert other < number or other_entry == entry, (
            f"{name} imports {imported}, which stands beside or above it"
        )


@pytest.mark.parametrize("name", [name for name in MODULES if is_in(name, "medusa_core")])
def test_the_engine_knows_no_page(name):
    for imported in imports_of(MODULES[name]):
        assert not any(is_in(imported, other) for other in PAGE), f"{name} imports {imported}"


def reached_from(name):
    """Everything a module imports, directly or through modules of the project."""
    found, waiting = set(), [name]
    while waiting:
        for imported in imports_of(MODULES[waiting.pop()]):
            if imported not in found:
                found.add(imported)
                if imported in MODULES:
                    waiting.append(imported)
    return found


def test_figures_hang_on_records_alone():
    figures = [name for name in MODULES if is_in(name, "ui.figures")]
    assert len(figures) > 1
    for name in figures:
        for imported in reached_from(name):
            assert not any(is_in(imported, heavy) for heavy in HEAVY), f"{name} reaches {imported}"


def test_reaching_goes_through_modules():
    """The walk above would see torch if it were there."""
    assert "torch" in reached_from("medusa_core.decoding")
    assert "medusa_core.errors" in reached_from("medusa_core.trace")


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_no_bare_except(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{file.name}:{node.lineno} catches everything"


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_modules_fit_an_editor_session(file):
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LINES
