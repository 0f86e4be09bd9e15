"""One prompt, and the file that holds the prompts of a data set in work order.

The file is JSONL, one prompt a line, sorted by `order_key`: a reader takes it from the top, and a budget takes an unbiased sample.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson


def content_id(content: bytes) -> str:
    """A stable 128-bit id of `content`: 32 hex characters of BLAKE2b."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def order_key(seed: int, prompt_id: str) -> str:
    """Where a prompt stands in the work order: 16 hex characters, the same on any machine, independent of all other prompts."""
    return hashlib.blake2b(prompt_id.encode(), digest_size=8, key=str(seed).encode()).hexdigest()


def input_hash(input_ids: Sequence[int]) -> str:
    """A 128-bit hash of token ids, as little-endian 32-bit integers: 32 hex characters."""
    ids = array("i", input_ids)
    if ids.itemsize != 4:  # pragma: no cover - no known platform
        raise RuntimeError("array('i') is not 32 bits here")
    return content_id(ids.tobytes())


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is sent for one response.

    id: 32 hex characters, from the content of the conversation up to here (never from a position).
    input_ids: prompt token ids, generation prompt included.
    conversation, turn: which user turn of which conversation this is; turn counts from 0.
    messages, later_turns: for `turns: all` only: the messages so far, and the user messages still to come.
    """

    id: str
    input_ids: list[int]
    dataset: str
    conversation: str
    turn: int = 0
    tools: list[dict[str, Any]] | None = None
    messages: list[dict[str, Any]] | None = None
    later_turns: list[dict[str, Any]] = field(default_factory=list)

    def to_line(self) -> bytes:
        """The prompt as one JSON line, fields without a value left out."""
        row: dict[str, Any] = {
            "id": self.id,
            "input_ids": self.input_ids,
            "dataset": self.dataset,
            "conversation": self.conversation,
            "turn": self.turn,
        }
        if self.later_turns:
            row |= {"messages": self.messages, "later_turns": self.later_turns}
            if self.tools:
                row["tools"] = self.tools
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def read_prompts(path: Path) -> Iterator[Prompt]:
    """The prompts of a file, in work order, one at a time. The file was written whole, so any damage raises."""
    with path.open("rb") as stream:
        for line in stream:
            yield Prompt(**orjson.loads(line))
