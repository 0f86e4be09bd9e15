"""Answers that are nearly the same as an earlier one of their data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmill.corpus.quality.phrases import phrase_count, phrases_at

if TYPE_CHECKING:
    from draftmill.corpus.quality.phrases import Quads

SHORTEST = 64
"""Phrases an answer must have: short answers are rightly the same for many prompts."""

SKETCH = 16
ALIKE = 14
"""An answer is a near duplicate when this many of the SKETCH smallest values of its phrases are also among those of an earlier answer.

The smallest hashes of a set are a random sample of it (bottom-k sketch, Broder 1997), so 14 of 16 means that about nine of ten phrases
are the same: the answers differ in a few words.
"""

_PROBES = 4
_SLOT_PRIME = 1_048_573
_EXPECTED_SAMPLE = 32


class NearDuplicates:
    """Remembers answers: 64 bytes each, and a table of fixed size that finds them by any of their four smallest hashes.

    The table forgets: a later answer takes the place of an earlier one with the same slot. So beyond some 200,000 answers a duplicate
    may go unseen; nothing is ever called a duplicate that is none, since the sketches themselves are compared.
    """

    def __init__(self) -> None:
        import numpy as np

        self._sketches = np.zeros((1024, SKETCH), dtype=np.uint32)
        self._rows = 0
        self._slots = np.full(_SLOT_PRIME, -1, dtype=np.int32)

    def __call__(self, quads: Quads) -> bool:
        """Whether an earlier answer was nearly the same; `quads` are the `quad_hashes` of this one, which is remembered if not."""
        if phrase_count(quads) < SHORTEST:
            return False
        smallest = _smallest(quads)
        probes = [value % _SLOT_PRIME for value in smallest[:_PROBES]]
        mine = {(value ^ (value >> 32)) & 0xFFFFFFFF for value in smallest}
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


def _smallest(quads: Quads) -> list[int]:
    """The SKETCH smallest different phrase values, rising; fewer where there are not so many."""
    import numpy as np

    count = phrase_count(quads)
    # Of n values spread evenly, this cut leaves about 32; only they are made and sorted.
    cut = np.uint32(min(2**32 - 1, 2**32 * _EXPECTED_SAMPLE // count))
    few = sorted(set(phrases_at(quads, (quads[:count] <= cut).nonzero()[0]).tolist()))
    return few[:SKETCH] if len(few) >= SKETCH else sorted(set(phrases_at(quads, np.arange(count)).tolist()))[:SKETCH]
