"""Any other schema, by column names from YAML."""

from __future__ import annotations

from typing import ClassVar

from draftmill.errors import PermanentError
from draftmill.sources.adapters.base import Adapter, Row, tools_of
from draftmill.sources.adapters.messages import listed
from draftmill.sources.chat import CONTENT_KEYS, ROLE_KEYS, Conversation, Message, messages_of, single, text_of
from draftmill.spec.dataset import fault_in_columns


class Generic(Adapter):
    """`columns` names them: either `messages` (and `role`, `content` for the keys inside) or `prompt`, with `system` and `tools`."""

    name: ClassVar[str] = "generic"

    def __init__(self, columns: dict[str, str]) -> None:
        fault = fault_in_columns(columns)
        if fault is not None:
            raise PermanentError(f"columns: {fault}")
        self._is_list = "messages" in columns
        self.mappings = (columns.get("messages") or columns["prompt"],)
        self._system, self._tools = columns.get("system", ""), columns.get("tools", "")
        self.optional = tuple(name for name in (self._system, self._tools) if name)
        self._role_keys = (columns["role"],) if "role" in columns else ROLE_KEYS
        self._content_keys = (columns["content"],) if "content" in columns else CONTENT_KEYS

    def conversation(self, row: Row) -> Conversation:
        value = row[self.column(row)]
        system, tools = row.get(self._system), tools_of(row.get(self._tools))
        if not self._is_list:
            return Conversation(single(system, value), tools)
        messages = list(messages_of(listed(value), self._role_keys, self._content_keys))
        instructions = text_of(system).strip()
        if instructions and messages[0]["role"] != "system":
            first: Message = {"role": "system", "content": instructions}
            messages.insert(0, first)
        return Conversation(messages, tools)
