"""Freed memory stays with the process: large blocks come from the heap, and the heap does not shrink."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest

CODE = """
import ctypes, sys, torch
from orlomo.engines.memory import keep_freed_memory
names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
Info = type("Info", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_size_t) for name in names]})
mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Info
if sys.argv[1] == "keep":
    assert keep_freed_memory()
mapped, heap = mallinfo2().hblkhd, mallinfo2().arena
block = torch.ones(4_000_000)
own_mapping = mallinfo2().hblkhd - mapped
del block
print(own_mapping, mallinfo2().arena - heap)
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="the C library is not glibc 2.33 or newer",
)
def test_memory_is_kept() -> None:
    def measured(word: str) -> list[int]:
        done = subprocess.run([sys.executable, "-c", CODE, word], capture_output=True, text=True, check=True)
        return [int(part) for part in done.stdout.split()]

    own_mapping, kept = measured("leave")
    assert own_mapping >= 16_000_000  # a mapping of its own, given back when the block is freed
    own_mapping, kept = measured("keep")
    assert own_mapping == 0
    assert kept >= 12_000_000  # less what the heap had to spare before
