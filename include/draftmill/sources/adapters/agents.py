"""Trajectories of software-engineering agents."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from draftmill.sources.adapters.base import Adapter, Row, tools_of
from draftmill.sources.adapters.messages import listed
from draftmill.sources.chat import Conversation, Message, messages_of


class SWEAgent(Adapter):
    """nebius/SWE-agent-trajectories: `trajectory` of `{role, text, system_prompt}`; a system turn's text is in `system_prompt`."""

    name: ClassVar[str] = "sweagent"
    mappings = ("trajectory",)
    agent = True

    def conversation(self, row: Row) -> Conversation:
        entries = listed(row[self.column(row)])
        return Conversation(messages_of(_moved(entries), content_keys=("text", "system_prompt", "content")))


def _moved(entries: Any) -> Any:
    """An empty `text` beside a `system_prompt` is no text."""
    if not isinstance(entries, list):
        return entries
    return [_without_empty_text(entry) if isinstance(entry, dict) and entry.get("text") == "" else entry for entry in entries]


def _without_empty_text(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "text"}


class SWESmith(Adapter):
    """SWE-bench/SWE-smith-trajectories: `messages` as a JSON string or a list.

    Its splits `tool`, `xml` and `ticks` hold the same trajectories and differ in how a call is written, and so in the system prompt.
    So a first prompt is the same whichever split it is read from when all but its system prompt is; with recorded answers as history,
    the trajectory's id says what is the same.
    """

    name: ClassVar[str] = "swesmith"
    mappings = ("messages",)
    optional = ("tools", "traj_id")
    agent = True

    def conversation(self, row: Row) -> Conversation:
        trajectory = row.get("traj_id")
        identity = functools.partial(_identity, trajectory if isinstance(trajectory, str) else None)
        return Conversation(messages_of(listed(row[self.column(row)])), tools_of(row.get("tools")), identity)


def _identity(trajectory: str | None, messages: list[Message]) -> Any:
    if trajectory and any(message["role"] == "assistant" for message in messages):
        return trajectory
    return [message for message in messages if message["role"] != "system"]
