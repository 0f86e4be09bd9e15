"""glaiveai/glaive-function-calling-v2: two strings, with definitions, calls and results written out in text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from draftmill.sources.adapters.base import Adapter, Row, tools_of
from draftmill.sources.chat import Conversation, Message, SkipRow, text_of, user_message
from draftmill.sources.tools import ToolIds, call

_TURN = re.compile(r"(?:^|\n)[ \t]*(USER|ASSISTANT|FUNCTION RESPONSE):[ \t]*")
_END = "<|endoftext|>"
_CALL = re.compile(r"<functioncall>\s*(\{.*\})\s*", re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"]+)"')
_ARGUMENTS = re.compile(r"""["']arguments["']\s*:\s*(?:'(.*)'|(\{.*\})|"(.*)")\s*\}\s*$""", re.DOTALL)
_ANNOUNCEMENT = re.compile(r"You are a helpful assistant with access to the following functions\. Use them if required\s*-?\s*")


class Glaive(Adapter):
    """`system`: instructions and function definitions; `chat`: turns that begin with USER:, ASSISTANT: or FUNCTION RESPONSE:."""

    name: ClassVar[str] = "glaive"
    mappings = ("chat",)
    optional = ("system",)
    agent = True

    def conversation(self, row: Row) -> Conversation:
        instructions, tools = _split_system(text_of(row.get("system")))
        return Conversation(_messages(instructions, text_of(row[self.column(row)])), tools)


def _split_system(text: str) -> tuple[str, list[dict[str, Any]] | None]:
    """Instructions and definitions. The sentence that announces the functions goes: the template announces them in its own way."""
    text = text.strip().removeprefix("SYSTEM:").strip()
    head, brace, rest = text.partition("{")
    if not brace:
        return text, None
    tools = tools_of(f"[{','.join(_objects(brace + rest))}]")
    return _ANNOUNCEMENT.sub("", head).strip(), tools


def _objects(text: str) -> Iterator[str]:
    """The JSON objects that stand one after another in `text`. SkipRow(`broken_tools`) where one does not end."""
    depth, start, quoted, escaped = 0, 0, False, False
    for position, char in enumerate(text):
        if quoted:
            escaped, quoted = (char == "\\" and not escaped), (char != '"' or escaped)
        elif char == '"':
            quoted = True
        elif char == "{":
            start = position if depth == 0 else start
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                yield text[start : position + 1]
    if depth or quoted:
        raise SkipRow("broken_tools")


def _messages(instructions: str, chat: str) -> Iterator[Message]:
    if instructions:
        yield {"role": "system", "content": instructions}
    pieces = _TURN.split(chat)
    if len(pieces) < 3:
        raise SkipRow("empty_conversation")
    ids = ToolIds()
    for mark, text in zip(pieces[1::2], pieces[2::2], strict=True):
        body = text.replace(_END, "").strip()
        if mark == "USER":
            yield user_message(body)
        elif mark == "ASSISTANT":
            yield _assistant(body, ids)
        else:
            yield {"role": "tool", "content": body, "tool_call_id": ids.answered({})}


def _assistant(body: str, ids: ToolIds) -> Message:
    found = _CALL.search(body)
    name = _NAME.search(found[1]) if found else None
    if not found or not name:
        return {"role": "assistant", "content": body}
    arguments = _ARGUMENTS.search(found[1])
    text = next((group for group in arguments.groups() if group is not None), "") if arguments else ""
    made = call({"name": name[1], "arguments": text}, None, ids)
    return {"role": "assistant", "content": body[: found.start()].strip(), "tool_calls": [made]}
