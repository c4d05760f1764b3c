"""Memory that has been freed, and that libraries keep for themselves."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

# The number of this setting in malloc.h.
MMAP_THRESHOLD = -3


def give_back() -> None:
    """Give freed memory back to the system. On Linux, the allocators of C and of arrow keep it otherwise."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def keep_little() -> None:
    """Let the allocator of C on Linux map arrays from 2 MB on, so that freed ones go back to the system at once.

    It would otherwise keep them up to 32 MB in its heap, between arrays that are still in use.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(MMAP_THRESHOLD, 1 << 21)
