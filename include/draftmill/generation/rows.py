"""One journal line -> one response, in today's layout and in older ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from draftmill.generation.response import CHECK_PREFIX, Response, seal_holds

TODAYS_FIELDS = frozenset({"input_hash", "rid", "started_at", "finished_at"})
"""A row that has all of these is of today's layout, which always begins with a check; no older layout has them."""


class Unreadable(ValueError):  # noqa: N818 - says what the line is
    """The line is not a finished response: damaged, of an unknown layout, or a failure that was once written as a row."""


@dataclass(frozen=True, slots=True)
class Row:
    """A response as it was read. older: its layout is an older one. skipped: bytes of damage before it on its line."""

    response: Response
    older: bool = False
    skipped: int = 0


def read_row(line: bytes) -> Row:
    """The response of a line. Raises Unreadable.

    What stands before a sound row on the same line (a row that was cut off and written over, or zeros that a power cut left) is
    skipped; blanks, which a repair leaves, do not count as damage.
    """
    body = line.lstrip(b" ")
    try:
        return parse_line(body)
    except Unreadable:
        again = body.rfind(CHECK_PREFIX)
        if again <= 0:
            raise
        row = parse_line(body[again:])
        return Row(row.response, row.older, len(line) - len(body) + again)


def parse_line(line: bytes) -> Row:
    """The response of a line that holds nothing else. Raises Unreadable.

    Older layouts: counts below `usage` or `meta_info`; `output_ids` below `meta_info` or `response`; no ids at all, only text (the
    response then has no output ids, and its tokens still count); `finish_reason` as an object, or left out.
    """
    sealed = line.startswith(CHECK_PREFIX)
    if sealed and not seal_holds(line if line.endswith(b"\n") else line + b"\n"):
        raise Unreadable("its check does not match")
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise Unreadable(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise Unreadable("not a JSON object")
    if sealed:
        del row["check"]
        try:
            return Row(Response(**row))
        except TypeError as error:
            raise Unreadable(f"of another layout: {error}") from None
    if row.keys() >= TODAYS_FIELDS:
        raise Unreadable("the name of its check is damaged")
    return Row(_older(row), older=True)


def _older(row: dict[str, Any]) -> Response:
    parts = list(_parts(row))
    output_ids = _first(parts, "output_ids")
    if not _is_ids(output_ids):
        output_ids = []
    completion = _first(parts, "completion_tokens")
    if not isinstance(completion, int):
        completion = len(output_ids)
    prompt_id = row.get("id")
    if not isinstance(prompt_id, str) or not prompt_id or completion <= 0:
        raise Unreadable("has no id or no completion tokens")
    sampling = _first(parts, "sampling", "sampling_params")
    sampling = sampling if isinstance(sampling, dict) else {}
    prompt_tokens = _first(parts, "prompt_tokens")
    return Response(
        id=prompt_id,
        input_hash=_text(_first(parts, "input_hash")),
        output_ids=output_ids,
        prompt_tokens=prompt_tokens if isinstance(prompt_tokens, int) else 0,
        completion_tokens=completion,
        finish_reason=_finish(_first(parts, "finish_reason"), completion, sampling),
        rid=_text(_first(parts, "rid")),
        server=_text(_first(parts, "server")),
        sampling=sampling,
        started_at=_number(_first(parts, "started_at")),
        finished_at=_number(_first(parts, "finished_at")),
        conversation=_text(_first(parts, "conversation")),
        turn=int(_number(_first(parts, "turn"))),
        input_ids=ids if _is_ids(ids := row.get("input_ids")) and row.get("turn") else None,
    )


def _parts(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The row and the objects in it that older layouts kept its fields in."""
    yield row
    for name in ("meta_info", "usage", "response", "choices"):
        value = row.get(name)
        if isinstance(value, list):
            value = value[0] if value else None
        if isinstance(value, dict):
            yield from _parts(value)


def _first(parts: list[dict[str, Any]], *names: str) -> Any:
    for name in names:
        for part in parts:
            if part.get(name) is not None:
                return part[name]
    return None


def _finish(reason: Any, completion: int, sampling: dict[str, Any]) -> str:
    if isinstance(reason, dict):
        reason = reason.get("type")
    limit = sampling.get("max_new_tokens")
    if isinstance(limit, int) and completion >= limit:
        return "length"
    if reason in (None, "stop", "length"):
        return reason or "stop"
    raise Unreadable(f"ended by {reason!r}, which is not a finished response")


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(entry) is int for entry in value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
