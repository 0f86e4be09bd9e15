"""A compact set of response ids with the place of each in the journal: 24 bytes an id, however many there are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from draftmill.prompts.prompt import content_id

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Words = npt.NDArray[np.uint64]
    Places = npt.NDArray[np.int64]

_HEX_ID = re.compile(r"[0-9a-fA-F]{32}")
_MERGE_AT = 65_536
_LOW = (1 << 64) - 1


def id_number(prompt_id: str) -> int:
    """The 128 bits of an id; ids of another form, which older journals have, are hashed to 128 bits."""
    return int(prompt_id if _HEX_ID.fullmatch(prompt_id) else content_id(prompt_id.encode()), 16)


class IdIndex:
    """Ids and their places. Those known at the start lie in sorted arrays; later ones gather in a dictionary and are merged in."""

    def __init__(self) -> None:
        import numpy as np

        self._high: Words = np.empty(0, np.uint64)
        self._low: Words = np.empty(0, np.uint64)
        self._places: Places = np.empty(0, np.int64)
        self._recent: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._high) + len(self._recent)

    def __contains__(self, prompt_id: str) -> bool:
        return self.place(prompt_id) is not None

    def place(self, prompt_id: str) -> int | None:
        """Where the response begins in the journal, in bytes; -1 for an id that was only taken; None for an unknown one."""
        number = id_number(prompt_id)
        recent = self._recent.get(number)
        if recent is not None:
            return recent
        high, low = number >> 64, number & _LOW
        at = int(self._high.searchsorted(self._high.dtype.type(high)))
        while at < len(self._high) and int(self._high[at]) == high:
            if int(self._low[at]) == low:
                return int(self._places[at])
            at += 1
        return None

    def add(self, prompt_id: str, place: int = -1) -> None:
        """Note an id; a second note changes nothing but memory."""
        self._recent[id_number(prompt_id)] = place
        if len(self._recent) >= _MERGE_AT:
            self._merge_recent()

    def _merge_recent(self) -> None:
        import numpy as np

        numbers, places = list(self._recent), list(self._recent.values())
        self._recent = {}
        self.load(
            np.fromiter((number >> 64 for number in numbers), np.uint64, len(numbers)),
            np.fromiter((number & _LOW for number in numbers), np.uint64, len(numbers)),
            np.array(places, np.int64),
        )

    def load(self, high: Words, low: Words, places: Places) -> Sequence[int]:
        """Add many ids at once. Returns the indexes, into what was given, of ids that were known or given before."""
        import numpy as np

        known = len(self._high)
        if known:
            high, low = np.concatenate([self._high, high]), np.concatenate([self._low, low])
            places = np.concatenate([self._places, places])
        order = np.argsort(high, kind="stable")
        high = high[order]
        low = low[order]
        again = np.zeros(len(high), bool)
        again[1:] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
        if bool(np.any((high[1:] == high[:-1]) & ~again[1:])):
            order, high, low, again = self._by_both(order, high, low)
        if again.any():
            keep = ~again
            self._high, self._low, self._places = high[keep], low[keep], places[order[keep]]
        else:
            self._high, self._low, self._places = high, low, places[order]
        return sorted(int(index) - known for index in order[again])

    @staticmethod
    def _by_both(order: Places, high: Words, low: Words) -> tuple[Places, Words, Words, npt.NDArray[np.bool_]]:
        """Sort again by all 128 bits, for the rare case of two ids that share their upper half."""
        import numpy as np

        finer = np.lexsort((order, low, high))
        order, high, low = order[finer], high[finer], low[finer]
        again = np.zeros(len(high), bool)
        again[1:] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
        return order, high, low, again
