"""Imports point down, figures need no torch, no bare except, no module too long to read."""

from __future__ import annotations

import ast
import functools

from paths import ROOT

PACKAGES = ("medusa_core", "ui")
LINES = 350

# Bottom first. A module may import what stands on a lower line, and its own package.
LAYERS = [
    ["medusa_core.errors", "medusa_core.data", "medusa_core.library_messages", "medusa_core.text.plural"],
    ["medusa_core.config", "medusa_core.files"],
    [
        "medusa_core.trees.tree",
        "medusa_core.target.kv_cache",
        "medusa_core.acceptance.sampling",
        "medusa_core.text.prompt_check",
        "medusa_core.text.stopping",
        "medusa_core.drafters.medusa.heads",
        "medusa_core.target.masks",
    ],
    ["medusa_core.trees.search", "medusa_core.trees.token_tree"],
    [
        "medusa_core.target.model",
        "medusa_core.checkpoints",
        "medusa_core.loading.devices",
        "medusa_core.target.quantization",
    ],
    ["medusa_core.loading.model_size", "medusa_core.loading.weights"],
    ["medusa_core.loading.memory"],
    ["medusa_core.checkpoints.lora", "medusa_core.checkpoints.adapter_patterns"],
    ["medusa_core.checkpoints.peft_adapters"],
    ["medusa_core.checkpoints.adapters", "medusa_core.acceptance", "medusa_core.drafters"],
    ["medusa_core.decoding"],
    ["medusa_core.engine"],
    ["medusa_core.loading.load"],
    ["medusa_core.trace_format"],
    ["medusa_core.trace"],
    ["medusa_core"],  # everything not named above: command line, benchmark, training
    ["ui"],
]
HEAVY = {"torch", "transformers", "gradio", "accelerate", "medusa_core.engine", "medusa_core.loading.load"}
PAGE = {"gradio", "plotly", "ui"}


def python_files():
    """Every module of the project, tests left out."""
    return [ROOT / "app.py", *sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))]


FILES = python_files()


def shown(file):
    return str(file.relative_to(ROOT))


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


def test_imports_point_down():
    wrong = []
    for name in (name for name in MODULES if name != "app"):
        number, entry = layer_of(name)
        for imported in imports_of(MODULES[name]):
            if any(is_in(imported, package) for package in PACKAGES):
                other, other_entry = layer_of(imported)
                if other >= number and other_entry != entry:
                    wrong.append(f"{name} imports {imported}, which stands beside or above it")
    assert wrong == []


def test_the_engine_knows_no_page():
    assert [
        f"{name} imports {imported}"
        for name in MODULES if is_in(name, "medusa_core")
        for imported in imports_of(MODULES[name]) if any(is_in(imported, other) for other in PAGE)
    ] == []  # fmt: skip


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
    assert [
        f"{name} reaches {imported}"
        for name in figures
        for imported in reached_from(name) if any(is_in(imported, heavy) for heavy in HEAVY)
    ] == []  # fmt: skip


def test_reaching_goes_through_modules():
    """The walk above would see torch if it were there."""
    assert "torch" in reached_from("medusa_core.decoding")
    assert "medusa_core.errors" in reached_from("medusa_core.trace")


def test_no_bare_except():
    assert [
        f"{shown(file)}:{node.lineno} catches everything"
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ] == []


def test_modules_fit_an_editor_session():
    lengths = {shown(file): len(file.read_text(encoding="utf-8").splitlines()) for file in FILES}
    assert {name: length for name, length in lengths.items() if length > LINES} == {}
