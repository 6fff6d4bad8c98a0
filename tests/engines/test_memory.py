"""Freed memory stays with the process: a second large allocation costs few page faults."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

CODE = """
import resource, sys, torch
from orlomo.engines.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    parts = [torch.ones(4_000_000) for _ in range(4)]
    del parts
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(sum(faults() for _ in range(20)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_memory_is_kept() -> None:
    def count(word: str) -> int:
        done = subprocess.run([sys.executable, "-c", CODE, word], capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert 5 * count("keep") < count("leave")
