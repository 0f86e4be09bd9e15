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
    input_ids: the ids that were sent, only where they are not in the prompts file: a turn > 0, rendered during generation with the
        generated history. None otherwise, and then not written: the prompts file has them.
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
    input_ids: list[int] | None = None

    def to_line(self) -> bytes:
        """The response as one JSON line; `input_ids` is left out where it is None."""
        row = {name: getattr(self, name) for name in self.__dataclass_fields__}
        if self.input_ids is None:
            del row["input_ids"]
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
