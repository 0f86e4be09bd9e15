"""Degenerate loops: an answer that says the same few phrases over and over."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from draftmill.corpus.record import Ids

    Hashes = NDArray[np.uint64]

PHRASE = 8
"""Tokens in a phrase. Shorter ones repeat in honest tables and code."""

WINDOW = 1024
"""Tokens looked at together: a loop is found, wherever in the answer, when it fills such a window; one of twice the length always does."""

SHORTEST = 128
"""Shorter answers are not judged."""

DISTINCT = 0.2
"""A window is degenerate when fewer of its phrases than this are different: each then stands there five times on average."""

_CELL_BITS = 12


def phrase_hashes(ids: Ids) -> Hashes:
    """A 64-bit hash for each run of PHRASE tokens, shape [len(ids) - PHRASE + 1]; empty for shorter input.

    A polynomial modulo 2**64, built by doubling (2, 4, 8 tokens): three multiplications a token. Its upper bits are the good ones.
    """
    import numpy as np

    hashes = ids.astype(np.uint64)
    for width, factor in ((1, 0x9E3779B97F4A7C15), (2, 0xC2B2AE3D27D4EB4F), (4, 0x165667B19E3779F9)):
        if len(hashes) <= width:
            return hashes[:0]
        mixed = hashes[:-width] * np.uint64(factor)
        mixed += hashes[width:]
        hashes = mixed
    hashes *= np.uint64(0xFF51AFD7ED558CCD)
    return hashes


def is_degenerate(ids: Ids, hashes: Hashes) -> bool:
    """Whether some window of the answer (the whole answer, where it is shorter) consists of few phrases.

    ids: the answer. hashes: its `phrase_hashes`. Different phrases are counted by linear counting (Whang et al. 1990): each marks one of
    4,096 cells by its hash, and near the limit, with some 200 cells marked, that is exact to 3 %.
    """
    import numpy as np

    if len(ids) < SHORTEST:
        return False
    windows = max(1, len(hashes) // WINDOW)
    width = len(hashes) // windows
    cells = (hashes[: windows * width] >> np.uint64(64 - _CELL_BITS)).astype(np.int64).reshape(windows, width)
    cells += np.arange(windows)[:, None] << _CELL_BITS
    marked = np.zeros(windows << _CELL_BITS, dtype=np.bool_)
    marked[cells.ravel()] = True
    return bool((marked.reshape(windows, -1).sum(axis=1) < DISTINCT * width).any())
