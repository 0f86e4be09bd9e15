"""Conversations as plain Python, whatever the source wrote them as.

A message is `{"role", "content"}` with role `system`, `user`, `assistant` or `tool` and content a string; an assistant's may have
`tool_calls`, a tool's has `tool_call_id`. Reading is lazy: a fault behind the part that is used spoils nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from draftmill.sources.tools import ToolIds, tool_calls

Message = dict[str, Any]

_ROLES = {
    "system": ("system", "developer"),
    "user": ("user", "human", "prompter"),
    "assistant": ("assistant", "gpt", "ai", "chatgpt", "bing", "bard", "bot", "model"),
    "tool": ("tool", "function", "observation", "function_response", "ipython"),
}
ROLE_OF = {word: role for role, words in _ROLES.items() for word in words}
"""The words that published data sets use for the four roles."""

ROLE_KEYS = ("role", "from")
CONTENT_KEYS = ("content", "value", "text")


class SkipRow(Exception):  # noqa: N818 - not a failure of the run: the row is counted under `reason` and the next one is read
    """A row that cannot be used. `reason` is a short constant word that reports count by."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class Conversation:
    """What an adapter makes of a row.

    messages: normalised messages, read lazily; iterating may raise SkipRow.
    tools: function definitions in OpenAI's form, or None.
    identity: from the messages that are sent, what makes two rows the same prompt; None means the messages themselves.
    """

    messages: Iterable[Message]
    tools: list[dict[str, Any]] | None = None
    identity: Callable[[list[Message]], Any] | None = None


def text_of(value: Any) -> str:
    """The text of a message's content: a string, None, or a list of parts that are all text. SkipRow(`not_text`) otherwise.

    Line ends become \\n, as the same row reaches us with either.
    """
    if isinstance(value, str):
        return value.replace("\r\n", "\n") if "\r" in value else value
    if value is None:
        return ""
    if isinstance(value, list):
        return "".join(_part(part) for part in value)
    raise SkipRow("not_text")


def _part(part: Any) -> str:
    if isinstance(part, str):
        return text_of(part)
    if isinstance(part, dict) and part.get("type", "text") == "text" and isinstance(part.get("text"), str):
        return text_of(part["text"])
    raise SkipRow("not_text")


def user_message(value: Any) -> Message:
    """A user message; what surrounds its text does not count as content."""
    text = value if type(value) is str and "\r" not in value else text_of(value)
    return {"role": "user", "content": text.strip()}


def single(system: Any, prompt: Any) -> list[Message]:
    """A conversation of one user message, with a system message where there is one."""
    messages = [user_message(prompt)]
    instructions = text_of(system).strip()
    return [{"role": "system", "content": instructions}, *messages] if instructions else messages


def messages_of(entries: Any, role_keys: Iterable[str] = ROLE_KEYS, content_keys: Iterable[str] = CONTENT_KEYS) -> Iterator[Message]:
    """Normalise a list of messages in any of the usual spellings.

    Raises SkipRow: `empty_conversation` (no list, or an empty one), `malformed_turn` (an entry that is no object, or has no role),
    `unknown_role`, `not_text`.
    """
    if not isinstance(entries, list) or not entries:
        raise SkipRow("empty_conversation")
    ids = ToolIds()
    for entry in entries:
        yield _message(entry, ids, role_keys, content_keys)


def _message(entry: Any, ids: ToolIds, role_keys: Iterable[str], content_keys: Iterable[str]) -> Message:
    if not isinstance(entry, dict):
        raise SkipRow("malformed_turn")
    word = next((entry[key] for key in role_keys if entry.get(key) is not None), None)
    if not isinstance(word, str):
        raise SkipRow("malformed_turn")
    role = ROLE_OF.get(word.strip().lower())
    if role is None:
        raise SkipRow("unknown_role")
    text = text_of(next((entry[key] for key in content_keys if entry.get(key) is not None), None))
    if role == "assistant":
        return _assistant(entry, text, ids)
    if role == "tool":
        return {"role": role, "content": text, "tool_call_id": ids.answered(entry)}
    return {"role": role, "content": text.strip()}


def _assistant(entry: dict[str, Any], text: str, ids: ToolIds) -> Message:
    message: Message = {"role": "assistant", "content": text}
    calls = tool_calls(entry.get("tool_calls"), ids)
    if calls:
        message["tool_calls"] = calls
    return message
