"""Memory that a training process frees stays with it."""

import os
import platform
import subprocess
import sys

import pytest

PAGES = """
import resource
from medusa_core.training.allocator import keep_freed_memory
if {keep}:
    assert keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    b"x" * 40_000_000
before = faults()
for _ in range(5):
    b"x" * 40_000_000
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator")
def test_a_large_block_is_not_cleared_anew_at_each_use():
    faults = {
        keep: int(
            subprocess.run(
                [sys.executable, "-c", PAGES.format(keep=keep)],
                capture_output=True,
                text=True,
                check=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            ).stdout
        )
        for keep in (False, True)
    }
    assert faults[True] < 100 < faults[False]
