"""The forward in C, compiled for this machine; tests of it skip where there is none."""

from __future__ import annotations

import functools

import pytest
import tiny
import torch
from built_once import run_folder
from filelock import FileLock

from medusa_core.llama import library as llama
from medusa_core.loading.tuning import cache_folder


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def llama_libraries(tmp_path_factory):
    """The C of ``medusa_core.llama`` by instruction set, compiled when a test first asks for it."""
    folder, locks = cache_folder() / "native", run_folder(tmp_path_factory)

    @functools.cache
    def compiled(isa):
        with pytest.MonkeyPatch.context() as patch, FileLock(locks / f"llama-{isa}.lock"):
            patch.setenv(llama.ISA_VARIABLE, isa)
            try:
                return llama.library_for_this_machine(folder)
            except llama.CompilerError:
                raise  # an error in the C must not pass for a machine that cannot run it
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


@pytest.fixture(scope="session")
def library(llama_libraries):
    """The library as this machine has it."""
    return llama_libraries("")


@pytest.fixture(scope="session")
def shipped():
    """The embedded model with all that is shipped for it, in float32."""
    return tiny.load_from()


@pytest.fixture(scope="session")
def embedded():
    """The same in bfloat16, with a forward that gives a row the same bits in any batch."""
    engine = tiny.load_from(dtype="bfloat16")
    if not engine.target.choice.exact:
        pytest.skip(engine.info.forward)
    return engine
