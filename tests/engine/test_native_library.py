"""The library in C: compiled once, done without where it cannot be, on one thread where others are late."""

from __future__ import annotations

import pytest
import torch

from medusa_core.llama import library as native
from medusa_core.llama import structures
from medusa_core.llama.library import NoLibraryError, library_for_this_machine
from medusa_core.loading import native_library as loading


@pytest.fixture(autouse=True)
def compiled_fast(monkeypatch):
    """What is compiled here is not run for long."""
    monkeypatch.setattr(native, "_FLAGS", ("-O0", *native._FLAGS[1:]))


def test_the_library_is_compiled_once_and_only_from_a_file_of_its_own(library, tmp_path, monkeypatch):
    first = library_for_this_machine(tmp_path)
    (path,) = tmp_path.iterdir()
    assert first.isa == library.isa
    monkeypatch.setattr(native, "_compile", lambda *_: pytest.fail("it is there"))
    library_for_this_machine(tmp_path)
    path.chmod(0o777)  # anybody could have written it
    with pytest.raises(pytest.fail.Exception, match="it is there"):
        library_for_this_machine(tmp_path)


def test_late_threads_leave_calls_to_one_for_a_while(library):
    own = native.Library(library.functions, "")
    torch.set_num_threads(3)
    assert [own.threads for _ in range(30)] == [3] * 30
    own.was_late()  # once is chance
    assert [own.threads for _ in range(5)] == [3] * 5
    own.was_late()
    assert [own.threads for _ in range(native._CALLS_ALONE + 2)] == [1] * native._CALLS_ALONE + [3, 3]
    own.was_late()
    assert own.threads == 3
    torch.set_num_threads(1)


def test_a_machine_without_a_library_says_why(library, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")

    def reason() -> str:
        with pytest.raises(NoLibraryError) as error:
            library_for_this_machine(tmp_path)
        assert str(loading.native_library()) == str(error.value)
        assert caplog.records[-1].getMessage() == f"No forward in C: {error.value}"
        return str(error.value)

    with monkeypatch.context() as context:
        context.setenv(native.SWITCH, "0")
        assert reason() == "MEDUSA_NATIVE is 0"
    with monkeypatch.context() as context:
        context.setattr(native.shutil, "which", lambda name: None)
        assert reason() == "there is no C compiler: pip install ziglang brings one"
    with monkeypatch.context() as context:
        context.setattr(native.platform, "machine", lambda: "riscv64")
        assert reason() == "it does not know riscv64 processors"
    with monkeypatch.context() as context:
        context.setenv(native.ISA, "mmx")
        assert reason().startswith("MEDUSA_ISA is mmx: for ")
    monkeypatch.setattr(native, "_FLAGS", (*native._FLAGS, "-include", "/nothing.h"))
    assert reason().startswith("the C compiler fails: ")


def test_a_cache_folder_of_no_use_is_done_without(library, tmp_path, monkeypatch):
    damaged = tmp_path / "damaged"
    monkeypatch.setenv("MEDUSA_CACHE", str(damaged))
    assert isinstance(loading.native_library(), native.Library)
    (path,) = damaged.iterdir()
    half = path.read_bytes()[:5000]  # which would crash when it is loaded
    path.unlink()  # it is in use
    path.write_bytes(half)
    path.chmod(0o700)
    assert isinstance(loading.native_library(), native.Library)
    assert len(list(damaged.iterdir())) == 1
    file = tmp_path / "file"
    file.write_text("a file")
    monkeypatch.setenv("MEDUSA_CACHE", str(file))
    assert isinstance(loading.native_library(), native.Library)


@pytest.mark.parametrize(
    ("features", "largest", "found"),
    [
        (set(), "", "sse2"),
        ({"avx2", "fma"}, "", "avx2"),
        ({"avx2", "fma"}, "amx", "avx2"),
        (set(native.INSTRUCTION_SETS["x86_64"][0].needed), "", "amx"),
        (set(native.INSTRUCTION_SETS["x86_64"][0].needed), "avx512", "avx512"),
    ],
)
def test_the_largest_usable_instruction_set_is_taken(monkeypatch, features, largest, found):
    monkeypatch.setattr(native, "machine", lambda: "x86_64")
    monkeypatch.setattr(native, "_processor_features", lambda: features)
    monkeypatch.setenv(native.ISA, largest)
    assert native.instruction_sets()[0].name == found
    assert native.instruction_sets()[-1].name == "sse2"


def test_a_structure_of_another_size_is_no_library(library, tmp_path, monkeypatch):
    """A field that was added on one side alone would be silent damage."""

    class Longer(structures.Part):
        _fields_ = (("more", structures.NUMBER),)

    monkeypatch.setattr(structures, "ALL", (*structures.ALL[:3], Longer, *structures.ALL[4:]))
    with pytest.raises(NoLibraryError, match="Longer has another size in C"):
        library_for_this_machine(tmp_path)
