"""Rooms import what the table says and never in a circle; figures need no torch; no module is too long."""

from __future__ import annotations

import ast
import functools
import re

import networkx as nx
from paths import ROOT

PACKAGES = ("medusa_core", "ui")
LINES = 350

# Each room with the rooms it may import beside EVERYWHERE, also for types alone. A room may import only what
# stands above it, so there is no cycle. A room is a folder of a package, or a module beside the folders.
EVERYWHERE = (
    "medusa_core.errors",
    "medusa_core.config",
    "medusa_core.files",
    "medusa_core.library_messages",
    "medusa_core.words",
)
ROOMS = {
    "medusa_core": {
        "errors": "",
        "config": "",
        "files": "",
        "library_messages": "",
        "words": "",
        "text": "",
        "trees": "",
        "hardware": "",
        "model": "trees",
        "llama": "hardware model trees",
        "acceptance": "trees",
        "checkpoints": "trees",
        "drafters": "acceptance checkpoints hardware llama model trees",
        "decoding": "acceptance drafters llama model trees",
        "engine": "acceptance decoding drafters model text trees",
        "trace": "acceptance decoding drafters engine model trees",
        "loading": "checkpoints drafters engine hardware llama model",
        "custom_generate": "acceptance checkpoints decoding drafters model trees",
        "evaluation": (
            "acceptance checkpoints decoding drafters engine hardware llama loading model text trees"
        ),
        "api": "decoding drafters engine evaluation loading trace",
        "training": "acceptance checkpoints drafters engine evaluation loading model text",
        "longrun": "acceptance decoding drafters engine loading text training trees",
        "experiments": "drafters engine evaluation hardware loading longrun model text training trees",
        "cli": (
            "acceptance checkpoints custom_generate decoding drafters engine evaluation experiments "
            "hardware loading longrun text trace training trees"
        ),
        "__main__": "cli",
    },
    "ui": {
        "figures": "drafters experiments hardware trace trees",
        "records": "acceptance drafters experiments text trace trees",
        "serving": "engine evaluation loading records trace",
        "components": "acceptance drafters records trace",
        "runs": "decoding drafters engine evaluation records serving text trace",
        "tabs": (
            "checkpoints components drafters engine evaluation experiments figures hardware model records "
            "runs serving trace training trees"
        ),
        "launch": "checkpoints runs serving tabs",
    },
}
# Rooms whose types stand in annotations of a room below them.
TYPES_OF_ABOVE = {
    ("medusa_core.drafters", "medusa_core.engine"),
    ("medusa_core.drafters", "medusa_core.loading"),
    ("medusa_core.model", "medusa_core.llama"),
}
HEAVY = {"torch", "transformers", "gradio", "accelerate", "medusa_core.engine", "medusa_core.loading.load"}
PAGE = {"gradio", "plotly", "ui"}


def python_files():
    """Every module of the project, tests left out."""
    return [
        ROOT / "app.py",
        *sorted(file for package in (*PACKAGES, "tools") for file in (ROOT / package).rglob("*.py")),
    ]


FILES = python_files()


def shown(file):
    return str(file.relative_to(ROOT))


def module_name(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(file): file for file in FILES}


def _nodes_that_run(node):
    """All nodes below one, without what is imported for type checkers alone."""
    yield node
    for child in ast.iter_child_nodes(node):
        for_types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        for part in child.orelse if for_types else [child]:
            yield from _nodes_that_run(part)


@functools.cache
def imports_of(file, types=False):
    """Full names of what a file imports when it runs, also inside functions; ``types``: or for types."""
    names, module = set(), ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(module) if types else _nodes_that_run(module):
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


def room_of(name):
    """The room of a module, None for a package's own ``__init__`` and for what is not of this project."""
    package, _, rest = name.partition(".")
    return f"{package}.{rest.split('.')[0]}" if package in PACKAGES and rest else None


def allowed():
    """{room: the rooms it may import}, in full names."""
    owner = {room: package for package, rooms in ROOMS.items() for room in rooms}
    return {
        f"{package}.{room}": {f"{owner[name]}.{name}" for name in names.split()} | set(EVERYWHERE)
        for package, rooms in ROOMS.items()
        for room, names in rooms.items()
    }


def room_imports(types=True):
    """(module, its room, imported module, its room) for every import of another room."""
    for name, file in MODULES.items():
        room = room_of(name)
        for imported in imports_of(file, types):
            other = room_of(imported)
            if room is not None and other is not None and other != room:
                yield name, room, imported, other


def test_the_table_names_every_room_and_no_other():
    assert {room_of(name) for name in MODULES} - {None} == set(allowed())


def test_rooms_import_what_the_table_allows():
    table = allowed()
    assert [
        f"{name} imports {imported}: {room} may not import {other}"
        for name, room, imported, other in room_imports()
        if other not in table[room] and (room, other) not in TYPES_OF_ABOVE
    ] == []  # fmt: skip


def test_the_table_allows_nothing_that_nobody_uses():
    used = {(room, other) for _, room, _, other in room_imports()}
    assert [
        f"{room} does not import {other}: take it out of the table"
        for room, others in allowed().items()
        for other in others.difference(EVERYWHERE) if (room, other) not in used
    ] == []  # fmt: skip


def cycles_of(graph):
    return [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1]


def test_no_rooms_and_no_modules_import_each_other():
    rooms = nx.DiGraph((room, other) for _, room, _, other in room_imports(types=False))
    assert cycles_of(rooms) == []
    order = list(allowed())
    assert [edge for edge in rooms.edges if order.index(edge[1]) >= order.index(edge[0])] == []
    modules = nx.DiGraph(
        (name, imported)
        for name, file in MODULES.items() for imported in imports_of(file) if imported in MODULES
    )  # fmt: skip
    assert cycles_of(modules) == []


def test_a_cycle_would_be_seen():
    assert cycles_of(nx.DiGraph([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")])) == [["a", "b", "c"]]


def test_every_room_says_what_it_may_import():
    """The line "Imports: …" of a folder's ``__init__`` is its line of the table."""
    wrong = []
    for package, rooms in ROOMS.items():
        for room, names in rooms.items():
            file = MODULES[f"{package}.{room}"]
            if file.name != "__init__.py":
                continue
            text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
            said = re.search(r"^Imports: ([^.]*)\.", text, re.MULTILINE)
            if said is None or re.split(r",\s+", said[1]) != (names.split() or ["no other room"]):
                wanted = ", ".join(names.split()) or "no other room"
                wrong.append(f"{shown(file)} must say: Imports: {wanted}.")
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
    assert "medusa_core.errors" in reached_from("medusa_core.trace.builder")


def test_no_bare_except():
    assert [
        f"{shown(file)}:{node.lineno} catches everything"
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ] == []


def test_modules_and_test_files_fit_an_editor_session():
    files = [*FILES, *sorted((ROOT / "tests").rglob("*.py"))]
    lengths = {shown(file): len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    assert {name: length for name, length in lengths.items() if length > LINES} == {}
