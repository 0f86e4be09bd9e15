"""Finding the prompt of a response: prompts lie in work order, responses in the order of their completion."""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import orjson

from draftmill.corpus.id_text import prompt_ids
from draftmill.errors import PermanentError
from draftmill.prompts.prompt import order_key

_ID_FIRST = re.compile(rb'\{"id":"([^"\\]+)"')


class PromptIndex:
    """Prompts of a file by id.

    The file is sorted by `order_key`, so a lookup reads on only until it has passed the place where the prompt would stand: a campaign
    that answered the first thousand of two million prompts never reads the rest. Memory: 16 bytes a prompt passed, nothing else.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.seed = seed
        try:
            self._stream = path.open("rb")
        except FileNotFoundError:
            raise PermanentError(f"{path}: no such file; prepare the data set again") from None
        self._keys = array("Q")
        self._ends = array("Q", [0])
        self._exhausted = False

    def __enter__(self) -> PromptIndex:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stream.close()

    def find(self, prompt_id: str) -> Sequence[int] | None:
        """The `input_ids` of the prompt with this id, or None where the file has none."""
        key = self._key(prompt_id)
        while not self._exhausted and (not self._keys or self._keys[-1] <= key):
            self._read_on()
        place = bisect_left(self._keys, key)
        while place < len(self._keys) and self._keys[place] == key:
            line = self._line(place)
            if _id_of(line) == prompt_id:
                return prompt_ids(line)
            place += 1  # two ids of one key: as good as impossible, and harmless
        return None

    def _key(self, prompt_id: str) -> int:
        return int(order_key(self.seed, prompt_id), 16)

    def _read_on(self) -> None:
        line = self._stream.readline()
        if not line:
            self._exhausted = True
            return
        key = self._key(_id_of(line))
        if self._keys and key < self._keys[-1]:
            raise PermanentError(
                f"{self.path}: prompt {len(self._keys) + 1} is out of work order for seed {self.seed}; prepare the data set again"
            )
        self._keys.append(key)
        self._ends.append(self._ends[-1] + len(line))

    def _line(self, place: int) -> bytes:
        start, end = self._ends[place], self._ends[place + 1]
        return os.pread(self._stream.fileno(), end - start, start)


def _id_of(line: bytes) -> str:
    match = _ID_FIRST.match(line)
    return match[1].decode() if match else str(orjson.loads(line)["id"])
