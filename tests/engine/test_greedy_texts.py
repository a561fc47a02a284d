"""Every drafter's greedy text is plain decoding's in C: in each kind of weights, on each processor."""

from __future__ import annotations

import greedy_texts
import pytest
from greedy_texts import EMBEDDED, KINDS


@pytest.fixture
def load_with(monkeypatch):
    """Call it with a compiled library: models are loaded with it."""
    return lambda library: monkeypatch.setattr(
        "medusa_core.loading.native_library._look_for_library", lambda folder: library
    )


def assert_all_are_plain_decoding_s(rows, kinds=tuple(KINDS)):
    assert {row.kind for row in rows} == set(kinds)
    for kind in kinds:
        methods = {row.method for row in rows if row.kind == kind}
        assert methods >= EMBEDDED - {"none"}
    assert [row for row in rows if row.differing] == []
    assert sum(row.tokens for row in rows) > 1.3 * sum(row.steps for row in rows)  # drafts are kept


def test_with_the_largest_instruction_set(library, load_with):
    load_with(library)
    found = list(greedy_texts.rows(1, 24, *KINDS, merged=False))
    assert {row.isa for row in found} == {library.isa}
    assert_all_are_plain_decoding_s(found)


def test_with_avx2(llama_libraries, library, load_with):
    smaller = llama_libraries("avx2")
    if smaller.isa != "avx2" or library.isa == "avx2":
        pytest.skip("this processor has no AVX2, or nothing larger")
    load_with(smaller)
    found = list(greedy_texts.rows(1, 12, "bfloat16", merged=False))
    assert {row.isa for row in found} == {"avx2"}
    assert_all_are_plain_decoding_s(found, ["bfloat16"])


@pytest.mark.slow
def test_in_texts_of_25_000_tokens(llama_library, load_with):
    load_with(llama_library)
    found = list(greedy_texts.rows(3, 170, *KINDS))
    assert {row.isa for row in found} == {llama_library.isa}
    assert_all_are_plain_decoding_s(found)
    assert sum(row.tokens for row in found) >= 25_000
