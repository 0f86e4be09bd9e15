"""Hashes of runs of tokens, from which repetition and near duplicates are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from draftmill.corpus.record import Ids

    Quads = NDArray[np.uint32]
    Phrases = NDArray[np.uint64]

PHRASE = 8
"""Tokens in a phrase. Shorter ones repeat in honest tables and code."""

_HALF = PHRASE // 2


def quad_hashes(ids: Ids) -> Quads:
    """A 32-bit hash for each run of four tokens, shape [len(ids) - 3]; empty for shorter input.

    Multiplications by odd numbers modulo 2**32: the upper bits are the good ones. Every token of a corpus goes through this, so it is
    four passes and no more.
    """
    import numpy as np

    words = ids.astype(np.uint32)
    if len(words) < _HALF:
        return words[:0]
    pairs = words[:-1] * np.uint32(0x9E3779B1)
    pairs += words[1:]
    quads = pairs[:-2] * np.uint32(0x85EBCA77)
    quads += pairs[2:]
    quads *= np.uint32(0xC2B2AE3D)
    return quads


def phrases_at(quads: Quads, places: NDArray[np.integer]) -> Phrases:
    """A 64-bit value for the phrase of PHRASE tokens at each place; its upper half is the quad hash there.

    Equal phrases have equal values. `places` are at most len(quads) - 1 - PHRASE // 2.
    """
    import numpy as np

    values: Phrases = quads[places].astype(np.uint64)
    values <<= np.uint64(32)
    values |= quads[places + _HALF]
    return values


def phrase_count(quads: Quads) -> int:
    """How many phrases the answer has."""
    return max(0, len(quads) - _HALF)
