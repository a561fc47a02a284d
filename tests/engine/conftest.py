"""The forward in C, compiled for this machine; tests of it skip where there is none."""

from __future__ import annotations

import functools

import pytest
import torch

from medusa_core.llama import library as llama
from medusa_core.target.native.library import Library, NoLibraryError, library_for_this_machine


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    try:
        return library_for_this_machine(tmp_path_factory.mktemp("library"))
    except NoLibraryError as reason:
        pytest.skip(f"no forward in C here: {reason}")


@pytest.fixture(params=["tiles", "vectors"])
def either(library, request):
    """The library with AMX, where there is that, and without."""
    if request.param == "tiles" and not library.tiles:
        pytest.skip("this processor has no AMX")
    return Library(library.functions, tiles=request.param == "tiles")


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def llama_libraries(tmp_path_factory):
    """The C of ``medusa_core.llama`` by instruction set, compiled when a test first asks for it."""
    folder = tmp_path_factory.mktemp("llama")

    @functools.cache
    def compiled(isa):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(llama.ISA, isa)
            try:
                return llama.library_for_this_machine(folder)
            except llama.NoLibraryError as reason:
                pytest.skip(f"no {isa} here: {reason}")

    return compiled


@pytest.fixture(params=[isa.name for isa in llama.INSTRUCTION_SETS.get(llama.machine(), ())])
def llama_library(llama_libraries, request):
    """The library with each instruction set that this processor can have."""
    found = llama_libraries(request.param)
    if found.isa != request.param:
        pytest.skip(f"this processor has no {request.param}")
    return found
