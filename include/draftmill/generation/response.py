"""One response as the journal holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson


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
    """

    id: str
    input_hash: str
    output_ids: list[int]
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

    def to_line(self) -> bytes:
        """The response as one JSON line."""
        return orjson.dumps(
            {name: getattr(self, name) for name in self.__dataclass_fields__},
            option=orjson.OPT_APPEND_NEWLINE,
        )
