"""How often each token occurs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Counts = NDArray[np.int64]

_BATCH_TOKENS = 1 << 18


class TokenCounts:
    """Counts ids of [0, vocab_size). They are gathered first: a pass over the vocabulary for each row would cost more than the row."""

    def __init__(self, vocab_size: int) -> None:
        import numpy as np

        self._counts: Counts = np.zeros(vocab_size, dtype=np.int64)
        self._waiting: list[NDArray[np.integer]] = []
        self._tokens = 0

    def add(self, ids: NDArray[np.integer]) -> None:
        """Count the ids of an array, shape [tokens]. The array must not change afterwards."""
        self._waiting.append(ids)
        self._tokens += len(ids)
        if self._tokens >= _BATCH_TOKENS:
            self.total()

    def total(self) -> Counts:
        """Occurrences by id so far, shape [vocab_size]."""
        import numpy as np

        if self._waiting:
            self._counts += np.bincount(np.concatenate(self._waiting), minlength=len(self._counts))
            self._waiting, self._tokens = [], 0
        return self._counts
