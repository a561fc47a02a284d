"""Where a small Space runs: two cores, AVX2, no home to write to, and in a second try no compiler."""

from __future__ import annotations

import sys

import pytest
from small_space import measured


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="cores are given and taken as on Linux")
@pytest.mark.parametrize("compiler", [True, False])
def test_the_page_answers_and_writes(compiler):
    """Its times are for docs/sharing.md; that there are any is what counts here."""
    found = measured(compiler=compiler)
    assert found["first token s, at once"] > 0
    assert found["resident MB"] < 16_000
