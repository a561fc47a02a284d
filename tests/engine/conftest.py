"""The forward in C, compiled for this machine; tests of it skip where there is none."""

from __future__ import annotations

import pytest
import torch

from medusa_core.target.native.library import (
    CompilerError,
    Library,
    NoLibraryError,
    library_for_this_machine,
)


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    try:
        return library_for_this_machine(tmp_path_factory.mktemp("library"))
    except CompilerError:
        raise  # an error in the C must not pass for a machine that cannot run it
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
