"""Keep freed memory for the next step instead of handing it back to the system.

A training step on a CPU allocates and frees activations of several megabytes each. glibc returns such memory to the
system whenever it lies at the end of the heap, and the next step pays for every page again: up to a tenth of the time
of a residual network, more or less at random. Other C libraries are left alone.
"""

from __future__ import annotations

import ctypes
import functools
import platform

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # from malloc.h
KEPT_BYTES = 1 << 29
LARGEST_FROM_HEAP_BYTES = 1 << 25  # the most that glibc allows


@functools.cache
def keep_freed_memory() -> bool:
    """Tell the allocator of this process to keep up to half a gigabyte; whether it listened."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(TRIM_THRESHOLD, KEPT_BYTES) and mallopt(MMAP_THRESHOLD, LARGEST_FROM_HEAP_BYTES))
