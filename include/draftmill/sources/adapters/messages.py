"""Chat data in the `messages` form (Mixture-of-Thoughts, UltraChat) and in the `conversations` form (OpenThoughts, ShareGPT)."""

from __future__ import annotations

from typing import Any, ClassVar

from draftmill.sources.adapters.base import Adapter, Row, tools_of
from draftmill.sources.chat import Conversation, Message, SkipRow, messages_of, single, text_of
from draftmill.sources.tools import parse_json


def listed(value: Any) -> Any:
    """A list of messages that may come as JSON text; SkipRow(`broken_json`) where the text is no JSON."""
    if not isinstance(value, str):
        return value
    try:
        return parse_json(value)
    except ValueError:
        raise SkipRow("broken_json") from None


def chat(value: Any, system: Any, tools: Any) -> Conversation:
    """A conversation from a list of messages, with the system prompt of a column of its own where the list has none."""
    entries = listed(value)
    definitions = tools_of(tools)
    messages = messages_of(entries)
    instructions = text_of(system).strip()
    if instructions and not _begins_with_system(entries):
        return Conversation(_after({"role": "system", "content": instructions}, messages), definitions)
    return Conversation(messages, definitions)


def _begins_with_system(entries: Any) -> bool:
    first = entries[0] if isinstance(entries, list) and entries else None
    return isinstance(first, dict) and first.get("role", first.get("from")) in ("system", "developer")


def _after(first: Message, rest: Any) -> Any:
    yield first
    yield from rest


class Messages(Adapter):
    """`messages`, or a single `prompt` where there is no list. Where both are there and differ, `messages` is the conversation."""

    name: ClassVar[str] = "messages"
    mappings = ("messages", "conversations", "conversation", "prompt")
    optional = ("system", "tools")

    def conversation(self, row: Row) -> Conversation:
        column = self.column(row)
        if column == "prompt" and isinstance(row[column], str):
            return Conversation(single(row.get("system"), row[column]), tools_of(row.get("tools")))
        return chat(row[column], row.get("system"), row.get("tools"))


class ShareGPT(Messages):
    """`conversations` of `{from, value}`, or `messages`, with an optional `system` column."""

    name: ClassVar[str] = "sharegpt"
    mappings = ("conversations", "conversation", "messages", "items")
