"""Degenerate loops: an answer that says the same few phrases over and over."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from draftmill.corpus.record import Ids

    Hashes = NDArray[np.uint64]

SHINGLE = 8
"""Tokens in a phrase. Shorter ones repeat in honest tables and code."""

WINDOW = 1024
"""Tokens looked at together: a loop is found when it has gone on for about this long, wherever in the answer."""

SHORTEST = 128
"""Shorter answers are not judged."""

DISTINCT = 0.2
"""A window is degenerate when fewer of its phrases than this fraction are different: each one then stands there five times on average."""


def shingle_hashes(ids: Ids) -> Hashes:
    """A 64-bit hash for each run of SHINGLE tokens, shape [len(ids) - SHINGLE + 1]; empty for shorter input.

    Built by doubling (2, 4, 8 tokens), so that it costs three multiplications a token.
    """
    import numpy as np

    hashes = ids.astype(np.uint64)
    for width, factor in ((1, 0x9E3779B97F4A7C15), (2, 0xC2B2AE3D27D4EB4F), (4, 0x165667B19E3779F9)):
        if len(hashes) <= width:
            return hashes[:0]
        mixed = hashes * np.uint64(factor)
        mixed ^= mixed >> np.uint64(29)
        hashes = mixed[:-width] + hashes[width:]
    return hashes


def is_degenerate(ids: Ids) -> bool:
    """Whether some window of the answer (the whole answer, where it is shorter) consists of few phrases."""
    import numpy as np

    if len(ids) < SHORTEST:
        return False
    hashes = shingle_hashes(ids)
    starts = [*range(0, max(1, len(hashes) - WINDOW + 1), WINDOW // 2), max(0, len(hashes) - WINDOW)]
    for start in dict.fromkeys(starts):
        window = hashes[start : start + WINDOW]
        if len(np.unique(window)) < DISTINCT * len(window):
            return True
    return False
