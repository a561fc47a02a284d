"""The library in C: looked for once a process, done without where it cannot be had, and its structures."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from medusa_core.errors import MedusaError
from medusa_core.llama import compile_c, structures
from medusa_core.llama import library as native
from medusa_core.llama.library import NoLibraryError, library_for_this_machine
from medusa_core.loading import devices as loading


@pytest.fixture(autouse=True)
def compiled_fast(monkeypatch):
    """What is compiled here is not run for long."""
    monkeypatch.setattr(native, "_FLAGS", ("-O0", *native._FLAGS[1:]))


@pytest.fixture(autouse=True)
def process():
    """What a process has found out is forgotten; to call it begins another one."""
    loading._look_for_library.cache_clear()
    yield loading._look_for_library.cache_clear
    loading._look_for_library.cache_clear()


@pytest.fixture
def runs(monkeypatch):
    """Command lines of the compiler, which does run."""
    commands, run = [], compile_c._run

    def counted(command, messages):
        commands.append(command)
        return run(command, messages)

    monkeypatch.setattr(compile_c, "_run", counted)
    return commands


def test_it_is_compiled_once_with_the_flags_of_the_environment(library, tmp_path, monkeypatch, runs):
    monkeypatch.setenv(native.MORE_FLAGS, "-Wall '-DTITLE=\"two words\"'")
    assert library_for_this_machine(tmp_path).isa == library_for_this_machine(tmp_path).isa == library.isa
    (command,) = runs
    assert {"-Wall", '-DTITLE="two words"'} <= set(command)
    monkeypatch.setenv(native.MORE_FLAGS, "-include /nothing.h")
    with pytest.raises(NoLibraryError, match="the C compiler fails"):  # the kept library has other flags
        library_for_this_machine(tmp_path)


def test_threads_of_a_run_are_those_of_its_thread_alone(library):
    own = native.Library(library.functions, "")
    own.count = 3
    with ThreadPoolExecutor(1) as other:
        assert other.submit(lambda: own.most_threads).result() == torch.get_num_threads()
        other.submit(setattr, own, "count", 5).result()
    assert own.most_threads == 3


def test_late_threads_leave_calls_to_one_for_a_while_and_longer_each_time(library):
    own = native.Library(library.functions, "")
    own.count = 3
    assert [own.begin_call() for _ in range(30)] == [3] * 30
    own.was_late()  # once is chance
    assert [own.begin_call() for _ in range(5)] == [3] * 5
    own.was_late()
    assert [own.begin_call() for _ in range(17)] == [1] * 16 + [3]
    own.was_late()
    assert [own.begin_call() for _ in range(33)] == [1] * 32 + [3]
    for calls in (64, 128, 256, 512, 512):
        own.was_late()
        assert [own.begin_call() for _ in range(calls + 1)] == [1] * calls + [3]
    assert [own.begin_call() for _ in range(8)] == [3] * 8
    own.was_late()  # by itself, so the next back-off is short again
    assert own.begin_call() == 3
    own.was_late()
    assert [own.begin_call() for _ in range(17)] == [1] * 16 + [3]


def test_a_machine_without_a_library_says_why(library, tmp_path, monkeypatch, caplog, process):
    caplog.set_level("INFO")

    def reason() -> str:
        process()
        with pytest.raises(NoLibraryError) as error:
            library_for_this_machine(tmp_path)
        assert str(loading.native_library()) == str(error.value)
        assert caplog.records[-1].getMessage() == f"No forward in C: {error.value}"
        return str(error.value)

    with monkeypatch.context() as context:
        context.setenv(native.SWITCH, "0")
        assert reason() == "MEDUSA_NATIVE is 0"
    with monkeypatch.context() as context:
        context.setenv("PATH", str(tmp_path))
        assert reason() == "there is no C compiler: pip install ziglang brings one"
    with monkeypatch.context() as context:
        context.setattr(native.platform, "machine", lambda: "riscv64")
        assert reason() == "it does not know riscv64 processors"
    with monkeypatch.context() as context:
        context.setenv(native.ISA_VARIABLE, "mmx")
        with pytest.raises(MedusaError, match=r"MEDUSA_ISA is 'mmx': use one of .*avx2"):
            reason()
    with monkeypatch.context() as context:
        context.setenv(native.MORE_FLAGS, "-DTITLE='open")
        assert reason() == "MEDUSA_CFLAGS is not a list of flags: No closing quotation"
    monkeypatch.setenv(native.MORE_FLAGS, "-include /nothing.h")
    assert reason().startswith("the C compiler fails: ")


def test_a_process_compiles_once_where_nothing_can_be_kept(library, tmp_path, monkeypatch, runs, caplog):
    file = tmp_path / "file"
    file.write_text("a file")
    monkeypatch.setenv("MEDUSA_CACHE", str(file))
    with ThreadPoolExecutor() as threads:
        found = list(threads.map(lambda _: loading.native_library(), range(4)))
    assert all(isinstance(one, native.Library) for one in found)
    assert len(runs) == 1
    assert sum("for this process alone" in message for message in caplog.messages) == 1
    found[0].was_late()
    found[0].was_late()
    assert (found[0].begin_call(), found[1].begin_call()) == (
        1,
        torch.get_num_threads(),
    )  # each with threads of its own


def test_a_process_asks_a_failing_compiler_once(library, tmp_path, monkeypatch, runs):
    (tmp_path / "cc").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("MEDUSA_CACHE", str(tmp_path / "cache"))
    for _ in range(3):
        assert str(loading.native_library()) == "the C compiler fails: it printed nothing"
    assert len(runs) == len(native.instruction_sets())


@pytest.mark.parametrize(
    ("features", "largest", "found"),
    [
        (set(), "", "sse2"),
        ({"avx2", "fma"}, "", "avx2"),
        ({"avx2", "fma"}, "amx", "avx2"),
        (set(native.INSTRUCTION_SETS["x86_64"][0].needed), "", "amx"),
        (set(native.INSTRUCTION_SETS["x86_64"][0].needed), "avx512_bf16", "avx512_bf16"),
        (set(native.INSTRUCTION_SETS["x86_64"][0].needed), "avx512", "avx512"),
    ],
)
def test_the_largest_usable_instruction_set_is_taken(monkeypatch, features, largest, found):
    monkeypatch.setattr(native, "machine", lambda: "x86_64")
    monkeypatch.setattr(native, "processor_flags", lambda: " ".join(features))
    monkeypatch.setenv(native.ISA_VARIABLE, largest)
    assert native.instruction_sets()[0].name == found
    assert native.instruction_sets()[-1].name == "sse2"


# --- The structures that Python and the C share lie in both as they are declared.


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
