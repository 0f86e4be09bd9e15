"""Answers that are nearly the same as an earlier one of their data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from draftmill.corpus.quality.repetition import Hashes

SHORTEST = 64
"""Phrases an answer must have: short answers are rightly the same for many prompts."""

SKETCH = 16
ALIKE = 14
"""An answer is a near duplicate when this many of its SKETCH smallest phrase hashes are also among those of an earlier answer.

The smallest hashes of a set are a random sample of it (bottom-k sketch, Broder 1997), so 14 of 16 means that about nine of ten phrases
are the same: the answers differ in a few words.
"""

_PROBES = 4
_SLOTS = 1 << 20
_EXPECTED_SAMPLE = 64


class NearDuplicates:
    """Remembers answers: 64 bytes each, and a table of fixed size that finds them by any of their four smallest hashes.

    The table forgets: a later answer takes the place of an earlier one with the same slot. So beyond some 200,000 answers a duplicate
    may go unseen; nothing is ever called a duplicate that is none, since the sketches themselves are compared.
    """

    def __init__(self) -> None:
        import numpy as np

        self._sketches = np.zeros((1024, SKETCH), dtype=np.uint32)
        self._rows = 0
        self._slots = np.full(_SLOTS, -1, dtype=np.int32)

    def __call__(self, hashes: Hashes) -> bool:
        """Whether an earlier answer was nearly the same; `hashes` are the phrase hashes of this one, which is remembered if not."""
        if len(hashes) < SHORTEST:
            return False
        smallest = _smallest(hashes)
        probes = [value % _SLOTS for value in smallest[:_PROBES]]
        mine = {value & 0xFFFFFFFF for value in smallest}
        for earlier in {int(self._slots[probe]) for probe in probes} - {-1}:
            if len(mine.intersection(self._sketches[earlier].tolist())) >= min(ALIKE, len(mine)):
                return True
        self._remember(mine, probes)
        return False

    def _remember(self, sketch: set[int], probes: list[int]) -> None:
        import numpy as np

        if self._rows == len(self._sketches):
            self._sketches = np.concatenate([self._sketches, np.zeros_like(self._sketches)])
        self._sketches[self._rows, : len(sketch)] = list(sketch)
        for probe in probes:
            self._slots[probe] = self._rows
        self._rows += 1


def _smallest(hashes: Hashes) -> list[int]:
    """The SKETCH smallest different hashes, rising; fewer where there are not so many."""
    import numpy as np

    # Of n values spread evenly, this cut leaves about 64; only they need sorting.
    cut = np.uint64(min(2**64 - 1, 2**64 * _EXPECTED_SAMPLE // len(hashes)))
    smallest = sorted(set(hashes[hashes <= cut].tolist()))[:SKETCH]
    return smallest if len(smallest) == SKETCH else sorted(set(hashes.tolist()))[:SKETCH]
