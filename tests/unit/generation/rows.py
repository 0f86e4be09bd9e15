"""Rows for journal tests."""

from __future__ import annotations

import random
from typing import Any

from draftmill.generation.response import Response
from draftmill.prompts.prompt import content_id


def make_row(number: int, tokens: int = 5, **changes: Any) -> Response:
    draw = random.Random(number)
    values: dict[str, Any] = {
        "id": content_id(b"%d" % number),
        "input_hash": content_id(b"input %d" % number),
        "output_ids": [draw.randrange(163_840) for _ in range(tokens)],
        "prompt_tokens": 10 + number % 7,
        "completion_tokens": tokens,
        "finish_reason": "length" if number % 4 == 3 else "stop",
        "rid": f"draftmill-test-{number:06d}",
        "server": "0123456789abcdef",
        "sampling": {"temperature": 1.0, "max_new_tokens": 512},
        "started_at": 1_700_000_000.25 + number,
        "finished_at": 1_700_000_009.75 + number,
        "conversation": content_id(b"conversation %d" % number),
        "turn": 0,
    }
    return Response(**(values | changes))
