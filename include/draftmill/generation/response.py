"""One response as the journal holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import xxhash

CHECK_PREFIX = b'{"check":"'
CHECKED_FROM = len(CHECK_PREFIX) + 16 + len(b'",')
"""Where the bytes begin that the check is taken over: 16 hex digits and `",` after the prefix."""


def sealed(body: bytes) -> bytes:
    """`body`, which is a JSON object without its opening brace and with its newline, as a line that carries its own check.

    The check is XXH3-64 of `body` and stands first, at a fixed place: a reader compares whole blocks of lines without parsing them.
    """
    return b'%s%s",%s' % (CHECK_PREFIX, xxhash.xxh3_64_hexdigest(body).encode(), body)


def seal_holds(line: bytes) -> bool:
    """Whether a line that begins with CHECK_PREFIX, newline included, is as it was written."""
    return line[len(CHECK_PREFIX) : CHECKED_FROM - 2] == xxhash.xxh3_64_hexdigest(line[CHECKED_FROM:]).encode()


@dataclass(frozen=True, slots=True)
class Response:
    """What the server generated for one prompt, exactly as received.

    input_hash: hash of the ids that were sent (draftmill.prompts.prompt.input_hash).
    output_ids: generated token ids; a stop token that ended the answer is included.
    finish_reason: `stop` or `length`, nothing else is ever a row.
    rid: the request id that we chose.
    server: fingerprint of the server that answered (version, arguments, model).
    sampling: the sampling parameters sent, max_new_tokens included.
    started_at, finished_at: Unix seconds.
    conversation, turn: as in the prompt.
    input_ids: the ids that were sent, only where they are not in the prompts file: a turn > 0, rendered during generation with the
        generated history. None otherwise, and then not written: the prompts file has them.
    """

    id: str
    input_hash: str
    output_ids: Sequence[int]
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str
    rid: str
    server: str
    sampling: dict[str, Any]
    started_at: float
    finished_at: float
    conversation: str = ""
    turn: int = 0
    input_ids: list[int] | None = None

    def to_line(self) -> bytes:
        """The response as one JSON line: its check, what an index needs at fixed places, the rest, and the long lists last."""
        rest: dict[str, Any] = {
            "input_hash": self.input_hash,
            "rid": self.rid,
            "server": self.server,
            "sampling": self.sampling,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "conversation": self.conversation,
            "turn": self.turn,
        }
        if self.input_ids is not None:
            rest["input_ids"] = self.input_ids
        rest["output_ids"] = self.output_ids
        head = b'"id":%s,"prompt_tokens":%8d,"completion_tokens":%8d,"finish_reason":%s,' % (
            orjson.dumps(self.id),
            self.prompt_tokens,
            self.completion_tokens,
            orjson.dumps(self.finish_reason),
        )
        return sealed(head + orjson.dumps(rest, option=orjson.OPT_APPEND_NEWLINE)[1:])
