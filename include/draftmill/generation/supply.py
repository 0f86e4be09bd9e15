"""Prompts in work order, one at a time: without those that are done or can never be sent, and with the turns that follow answers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

import orjson

from draftmill.errors import PermanentError
from draftmill.generation.journal import Journal
from draftmill.generation.work import Limits, Work
from draftmill.prompts.prompt import Prompt

LINES_AT_ONCE = 500
_ID_FIRST = b'{"id":"'

Follow = Callable[[Prompt, list[int]], Prompt | None]
"""The prompt of the turn after this one, given its answer's ids; None where the conversation ends."""


class Supply:
    """Reads the prompts file as far as it is needed; memory does not grow with it.

    follow: for multi-turn data sets. skipped: prompts that can never be sent, by reason. exhausted: nothing is left to hand out, but
    what comes back may bring later turns.
    """

    def __init__(self, path: Path, journal: Journal, follow: Follow | None = None) -> None:
        self._path = path
        self._journal = journal
        self._follow = follow
        try:
            self._stream = path.open("rb", buffering=1 << 20)
        except FileNotFoundError:
            raise PermanentError(f"{path}: no such file; prepare the data set first") from None
        self._next_turns: deque[Prompt] = deque()
        self.skipped: Counter[str] = Counter()
        self.read = 0
        self.refused: frozenset[str] = frozenset()
        self._at_end = False

    @property
    def exhausted(self) -> bool:
        """Whether there is nothing to hand out at present."""
        return self._at_end and not self._next_turns

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def take(self, limits: Limits) -> Work | None:
        """The next prompt to send. None where there is none, or where LINES_AT_ONCE were passed over: ask again later."""
        for _ in range(LINES_AT_ONCE):
            prompt = self._next_turns.popleft() if self._next_turns else self._from_file()
            if prompt is None:
                if self._at_end:
                    return None
                continue
            work = limits.vet(prompt)
            self._journal.index.ids.add(prompt.id)
            if isinstance(work, Work):
                return work
            self.skipped[work] += 1
        return None

    def answered(self, prompt: Prompt, output_ids: list[int]) -> None:
        """Continue a conversation: its next turn is handed out before any new conversation."""
        if self._follow and prompt.later_turns:
            self._queue_next(prompt, output_ids)

    def _from_file(self) -> Prompt | None:
        """The next prompt that is not done; None where this line's is, or at the end."""
        line = self._stream.readline()
        if not line:
            self._at_end = True
            return None
        self.read += 1
        if not self._follow and line.startswith(_ID_FIRST) and self._passed(line[7:39].decode(errors="replace")):
            return None
        prompt = Prompt(**orjson.loads(line))
        if not self._passed(prompt.id):
            return prompt
        if self._follow and prompt.later_turns:
            self._resume(prompt)
        return None

    def _passed(self, prompt_id: str) -> bool:
        return prompt_id in self._journal or prompt_id in self.refused

    def _resume(self, prompt: Prompt) -> None:
        """The first turn of this conversation is done; go on where it was left."""
        response = self._journal.read(prompt.id)
        if response is not None:
            self._queue_next(prompt, list(response.output_ids))

    def _queue_next(self, prompt: Prompt, output_ids: list[int]) -> None:
        following = self._follow(prompt, output_ids) if self._follow else None
        while following is not None:
            response = self._journal.read(following.id)
            if response is None:
                if not self._passed(following.id):
                    self._next_turns.append(following)
                return
            following = self._follow(following, list(response.output_ids)) if self._follow else None
