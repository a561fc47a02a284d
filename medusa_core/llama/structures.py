"""The structures and functions of ``structures.h``, as ctypes knows them."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ADDRESS = ctypes.c_void_p
_NUMBERS = {"num": ctypes.c_int64, "float": ctypes.c_float, "double": ctypes.c_double}

Types = dict[str, type[Any]]


def read_header(text: str) -> tuple[Types, dict[str, list[type[Any]]]]:
    """The structures of a header by name, and the types of each function's arguments."""
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    types: Types = dict(_NUMBERS)
    for fields, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", code, re.DOTALL):
        declared = [one for line in fields.split(";")[:-1] for one in _declared(line, types)]
        types[name] = type(name, (ctypes.Structure,), {"_fields_": declared})
    functions = {
        name: [kind for one in arguments.split(",") if one != "void" for _, kind in _declared(one, types)]
        for name, arguments in re.findall(r"^num (\w+)\((.*?)\);", code, re.DOTALL | re.MULTILINE)
    }
    return types, functions


def _declared(text: str, types: Mapping[str, type[Any]]) -> Iterator[tuple[str, type[Any]]]:
    """Names and types of a declaration such as ``const num *tokens, *place``."""
    kind, names = text.replace("const ", "").split(maxsplit=1)
    for name in names.split(","):
        stars, of = name.count("*"), types.get(kind, ADDRESS)
        if stars == 1:
            of = ctypes.POINTER(of) if issubclass(of, ctypes.Structure) else ADDRESS
        yield name.strip(" *\n"), ctypes.POINTER(ADDRESS) if stars == 2 else of


_TYPES, FUNCTIONS = read_header(Path(__file__).with_suffix(".h").read_text(encoding="utf-8"))
NUMBER = _TYPES["num"]
Linear, Layer, Model, Part, Batch, Heads, Greedy = (
    _TYPES[name] for name in ("Linear", "Layer", "Model", "Part", "Batch", "Heads", "Greedy")
)
