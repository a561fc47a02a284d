"""Every drafter's greedy text is plain decoding's in C: in each kind of weights, on each processor."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import greedy_texts
import pytest
from greedy_texts import EMBEDDED, KINDS, Row
from paths import ROOT

from medusa_core.llama import library as native


def rows_with(isa, prompts, tokens, *kind):
    """Of another process, since an instruction set is chosen once in each."""
    environment = os.environ | {native.ISA: isa, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, greedy_texts.__file__, str(prompts), str(tokens), *kind]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [Row(**json.loads(line)) for line in done.stdout.splitlines()]


def assert_all_are_plain_decoding_s(rows, kinds=tuple(KINDS)):
    assert {row.kind for row in rows} == set(kinds)
    for kind in kinds:
        methods = {row.method for row in rows if row.kind == kind}
        assert methods >= EMBEDDED - {"none"}
    assert [row for row in rows if row.differing] == []
    assert sum(row.tokens for row in rows) > 1.3 * sum(row.steps for row in rows)  # drafts are kept


def test_with_the_largest_instruction_set(library):
    found = list(greedy_texts.rows(1, 24, *KINDS, merged=False))
    assert {row.isa for row in found} == {library.isa}
    assert_all_are_plain_decoding_s(found)


def test_with_avx2(llama_libraries):
    if llama_libraries("avx2").isa != "avx2":
        pytest.skip("this processor has no AVX2")
    found = rows_with("avx2", 1, 12, "bfloat16")
    assert {row.isa for row in found} == {"avx2"}
    assert_all_are_plain_decoding_s(found, ["bfloat16"])


@pytest.mark.slow
def test_in_texts_of_25_000_tokens(llama_library):
    found = rows_with(llama_library.isa, 3, 170)
    assert {row.isa for row in found} == {llama_library.isa}
    assert_all_are_plain_decoding_s(found)
    assert sum(row.tokens for row in found) >= 25_000
