"""How much of a file lies in the page cache, which decides whether weights load in a minute or in twenty. See mincore(2)."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

_WINDOW = 4 << 20
_WINDOWS_A_FILE = 16
_RESIDENT = 1


def _resident_pages(mapping: mmap.mmap, offset: int, length: int) -> tuple[int, int]:
    """Pages of the window that are in memory, and pages in all. Nothing is read: asking does not load."""
    pages = -(-length // mmap.PAGESIZE)
    states = (ctypes.c_ubyte * pages)()
    # A private writable mapping gives its address to ctypes; it is never written.
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapping)) + offset
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(length), states):
        return 0, 0
    return sum(1 for state in states if state & _RESIDENT), pages


def cached_fraction(paths: list[Path]) -> float | None:
    """Share of the files in the page cache, from windows spread evenly over each; None where it cannot be told."""
    resident = total = 0
    for path in paths:
        size = path.stat().st_size
        if size == 0:
            continue
        with path.open("rb") as stream:
            mapping = mmap.mmap(stream.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        step = max(_WINDOW, size // _WINDOWS_A_FILE // mmap.PAGESIZE * mmap.PAGESIZE)
        for offset in range(0, size, step):
            found, pages = _resident_pages(mapping, offset, min(_WINDOW, size - offset))
            # A window stands for all that lies between it and the next one.
            share = min(step, size - offset) / min(_WINDOW, size - offset)
            resident, total = resident + int(found * share), total + int(pages * share)
        mapping.close()
    return round(resident / total, 3) if total else None
