"""Is this body an answer, and is it sound? What is not never becomes a row of the journal."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import orjson

from draftmill.generation.faults import RequestFault


@dataclass(frozen=True, slots=True)
class Answer:
    """A verified answer. surplus: ids of the prompt's tail that the server had put before the output, and which were taken off."""

    output_ids: list[int]
    finish_reason: str
    surplus: int


@dataclass(frozen=True)
class Expected:
    """What an answer is held against. prompt_tail(n): the last n ids that were sent. eos_ids: ids that end an answer, as far as known."""

    prompt_tokens: int
    prompt_tail: Callable[[int], list[int]]
    max_new_tokens: int
    vocab_size: int | None
    eos_ids: Collection[int] = ()


def verify(body: bytes, expected: Expected) -> Answer:
    """The answer in the body of a 200. Raises RequestFault with the kind of what is wrong.

    Accepted as older builds send them: `output_ids` inside `meta_info`, `finish_reason` as plain text or null. Ids beyond
    completion_tokens are accepted only where they are the prompt's tail, repeated before the output.
    """
    answer = _object(body)
    meta = answer["meta_info"]
    ids = answer.get("output_ids", meta.get("output_ids"))
    reason = meta.get("finish_reason")
    kind = reason.get("type") if isinstance(reason, dict) else reason
    if kind == "abort":
        raise _abort(reason)
    count = meta.get("completion_tokens")
    if not isinstance(ids, list) or not ids or type(count) is not int:
        raise RequestFault("no_ids", "an answer without output ids or without completion_tokens")
    if meta.get("prompt_tokens", expected.prompt_tokens) != expected.prompt_tokens:
        raise RequestFault(
            "wrong_prompt", f"{expected.prompt_tokens} prompt tokens were sent and the server counts {meta['prompt_tokens']}"
        )
    surplus = len(ids) - count
    if count <= 0 or surplus < 0 or (surplus and ids[:surplus] != expected.prompt_tail(surplus)):
        raise RequestFault("wrong_count", f"completion_tokens is {count} and there are {len(ids)} output ids")
    if surplus:
        ids = ids[surplus:]
    _check_ids(ids, expected.vocab_size)
    return Answer(ids, _finish(kind, ids, expected), surplus)


def _object(body: bytes) -> dict[str, Any]:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise RequestFault("error_body", "HTTP 200 with a body that is not JSON") from None
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    if not isinstance(answer, dict) or not isinstance(answer.get("meta_info"), dict):
        raise RequestFault("error_body", f"HTTP 200 without an answer: {body[:200].decode(errors='replace')}")
    return answer


def _abort(reason: Any) -> RequestFault:
    message = str(reason.get("message", "")) if isinstance(reason, dict) else ""
    memory = "memory" in message.lower()
    return RequestFault("out_of_memory" if memory else "aborted", message or "aborted by the server")


def _check_ids(ids: list[Any], vocab_size: int | None) -> None:
    """Raise RequestFault unless all are whole numbers inside the vocabulary. In C alone, because it is done for every token."""
    import numpy as np

    try:
        largest = int(np.frombuffer(array("Q", ids), np.uint64).max())
    except (TypeError, OverflowError):  # something that is no whole number, or a negative one
        largest = 2**64
    if largest >= (vocab_size or 2**63):
        raise RequestFault("foreign_id", "an output id lies outside the vocabulary")


def _finish(kind: Any, ids: list[int], expected: Expected) -> str:
    if len(ids) >= expected.max_new_tokens or kind == "length":  # the server may cut earlier, where its context ends
        return "length"
    if kind == "stop" or (kind is None and ids[-1] in expected.eos_ids):
        return "stop"
    raise RequestFault("unfinished", f"finish reason {kind!r} after {len(ids)} of {expected.max_new_tokens} tokens")
