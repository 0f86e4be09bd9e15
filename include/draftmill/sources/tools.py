"""Function definitions and calls: read from strings, lists or objects, and written in the one form that chat templates take.

Definitions are `{"type": "function", "function": {"name", ...}}`; calls are `{"id", "type": "function", "function": {"name", "arguments"}}`
(the format of OpenAI's chat completions, which `apply_chat_template` documents). Call ids are renumbered `functions.NAME:N`, N counting
the calls of a conversation from 0: Kimi models are trained on this form, and other templates take any string.
"""

from __future__ import annotations

import json
from typing import Any

import orjson


class BrokenTools(ValueError):  # noqa: N818 - caught by adapters, which skip the row
    """Text or values that are no function definitions."""


def plain(value: Any) -> Any:
    """Plain JSON values without nulls, so that JSONL and Parquet, which adds nulls and widens numbers, give the same value."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value if item is not None]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int | float | bool) else str(value)


def parse_json(text: str) -> Any:
    """The JSON value of `text`, lone surrogates and NaN allowed; ValueError where it is none."""
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        try:
            return json.loads(text)
        except RecursionError:
            raise ValueError("nested too deeply") from None


def definitions(value: Any) -> list[dict[str, Any]] | None:
    """Function definitions from a list, one object, or JSON text of either; None where there are none. Raises BrokenTools."""
    if isinstance(value, str):
        value = value.strip()
        if not value:
            return None
        try:
            value = parse_json(value)
        except ValueError:
            raise BrokenTools("not JSON") from None
    if not value:
        return None
    return [_definition(item) for item in (value if isinstance(value, list) else [value])] or None


def _definition(item: Any) -> dict[str, Any]:
    if isinstance(item, str):
        try:
            item = parse_json(item)
        except ValueError:
            raise BrokenTools("not JSON") from None
    item = plain(item)
    function = item.get("function", item) if isinstance(item, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BrokenTools("a definition without a name")
    return {"type": "function", "function": function}


class ToolIds:
    """New ids for the calls of one conversation, and which call each answer belongs to."""

    def __init__(self) -> None:
        self._count = 0
        self._renamed: dict[str, str] = {}
        self._waiting: list[str] = []

    def called(self, name: str, old: Any) -> str:
        """The id of the next call."""
        new = f"functions.{name}:{self._count}"
        self._count += 1
        self._waiting.append(new)
        if isinstance(old, str):
            self._renamed[old] = new
        return new

    def answered(self, entry: dict[str, Any]) -> str:
        """The id of the call that a tool message answers: the one it names, otherwise the oldest without an answer."""
        old = entry.get("tool_call_id")
        if old is None and isinstance(entry.get("tool_call_ids"), list):
            old = next(iter(entry["tool_call_ids"]), None)
        new = self._renamed.get(old) if isinstance(old, str) else None
        if new is None:
            return self._waiting.pop(0) if self._waiting else str(entry.get("name") or "tool")
        if new in self._waiting:
            self._waiting.remove(new)
        return new


def tool_calls(value: Any, ids: ToolIds) -> list[dict[str, Any]]:
    """The calls of an assistant message; entries that are no calls are left out."""
    return [call(item["function"], item.get("id"), ids) for item in value or () if _is_call(item)] if isinstance(value, list) else []


def _is_call(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("function"), dict) and isinstance(item["function"].get("name"), str)


def call(function: dict[str, Any], old_id: Any, ids: ToolIds) -> dict[str, Any]:
    """One call in the form that templates take. Arguments are an object where they are one, otherwise the text as it stands."""
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            parsed = parse_json(arguments)
        except ValueError:
            parsed = None
        arguments = parsed if isinstance(parsed, dict) else arguments
    name = function["name"]
    return {"id": ids.called(name, old_id), "type": "function", "function": {"name": name, "arguments": plain(arguments or {})}}
