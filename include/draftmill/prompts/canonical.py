"""The bytes that a prompt's id is made of: canonical JSON of what is sent, the same whatever file the row came from."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from draftmill.prompts.select import Selection
from draftmill.sources.chat import Message, SkipRow

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_NUL = b"\\u0000"
_QUESTION_HEAD, _QUESTION_TAIL = b'[[{"content":', b',"role":"user"}],null,[]]'


def canonical(value: Any) -> tuple[bytes, list[str]]:
    """JSON of `value` with sorted keys, and what had to be repaired: `surrogate` (replaced by U+FFFD) or `nul` (removed).

    Raises SkipRow(`nested_too_deeply`).
    """
    repaired: list[str] = []
    try:
        line = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        repaired.append("surrogate")
        line = _dump_repaired(value)
    if _ESCAPED_NUL in line:
        clean = orjson.dumps(_each_text(orjson.loads(line), _without_nul), option=orjson.OPT_SORT_KEYS)
        if clean != line:
            repaired.append("nul")
            line = clean
    return line, repaired


def _dump_repaired(value: Any) -> bytes:
    try:
        return orjson.dumps(_each_text(value, _without_surrogates), option=orjson.OPT_SORT_KEYS)
    except (TypeError, RecursionError):
        raise SkipRow("nested_too_deeply") from None


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(str(key)): _each_text(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_each_text(item, change) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        return str(value)
    return value


def _without_surrogates(text: str) -> str:
    """Halves of a pair that follow each other become the character they stand for; a lone one becomes U+FFFD."""
    paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _SURROGATE.sub("\ufffd", paired)


def _without_nul(text: str) -> str:
    return text.replace("\x00", "")


def encode_questions(texts: list[str]) -> list[bytes]:
    """What `encode_selection` makes of each text as a single user message. TypeError where one has lone surrogates; none has NUL."""
    return [b"".join((_QUESTION_HEAD, line, _QUESTION_TAIL)) for line in map(orjson.dumps, texts)]


Identity = Callable[[list[Message]], Any]


def encode_selection(selection: Selection, tools: list[dict[str, Any]] | None, identity: Identity | None) -> tuple[bytes, bytes, list[str]]:
    """What is sent, as JSON `[messages, tools, later]`, the bytes that its id is made of, and what was repaired.

    The id is made of `[messages, tools]`: of what the first request sends. Rows with the same first request are the same prompt.
    """
    payload, repaired = canonical([selection.messages, tools, selection.later])
    if repaired and not orjson.loads(payload)[0][-1]["content"].strip():
        raise SkipRow("empty_prompt")
    if identity is None and not selection.later:
        return payload, payload, repaired
    basis = selection.messages if identity is None else identity(selection.messages)
    return payload, canonical([basis, tools, []])[0], repaired
