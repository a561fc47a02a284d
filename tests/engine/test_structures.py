"""The structures that Python and the C share lie in both as they are declared."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from medusa_core.llama import structures

HEADER = """
typedef struct { /* a row; of a table */
  num rows, columns;
  float scale; /* of all */
} Small;

typedef struct {
  const Small *first, *second;
  Small own;
  const void *values;
  void **states;
  double seconds;
} Large;

num answer(void);
num sum(const Large *large, const num *values,
        num count);
"""


def test_a_header_becomes_structures_and_argument_types():
    types, functions = structures.read_header(HEADER)
    small, large, address = types["Small"], types["Large"], ctypes.c_void_p
    assert small._fields_ == [
        ("rows", ctypes.c_int64), ("columns", ctypes.c_int64), ("scale", ctypes.c_float)
    ]  # fmt: skip
    assert large._fields_ == [
        ("first", ctypes.POINTER(small)), ("second", ctypes.POINTER(small)), ("own", small),
        ("values", address), ("states", ctypes.POINTER(address)), ("seconds", ctypes.c_double),
    ]  # fmt: skip
    assert functions == {"answer": [], "sum": [ctypes.POINTER(large), address, ctypes.c_int64]}


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_compiler_lays_the_structures_out_as_ctypes_does(tmp_path):
    own = Path(structures.__file__).with_suffix(".h")
    lines = ["#include <stddef.h>", f'#include "{own}"']
    for one in (value for value in vars(structures).values() if isinstance(value, type(ctypes.Structure))):
        name, places = one.__name__, [(field, getattr(one, field)) for field, _ in one._fields_]
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(one)}, "size");')
        lines += [
            f"_Static_assert(offsetof({name}, {field}) == {place.offset} && "
            f'sizeof((({name} *)0)->{field}) == {place.size}, "{field}");'
            for field, place in places
        ]
    assert len(lines) > 60
    (tmp_path / "layout.c").write_text("\n".join(lines))
    command = ["cc", "-fsyntax-only", str(tmp_path / "layout.c")]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""
