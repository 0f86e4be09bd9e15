"""Which part of a conversation is sent: the first user turn, all user turns one after another, or the last one with its history."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from draftmill.errors import PermanentError
from draftmill.sources.adapters import Adapter
from draftmill.sources.chat import Message, SkipRow
from draftmill.spec.dataset import Turns


@dataclass(slots=True)
class Selection:
    """messages: what the first request sends, ending in a user or tool message. later: user messages of the turns after it."""

    messages: list[Message]
    later: list[Message] = field(default_factory=list)


def selector(turns: Turns, adapter: Adapter) -> Callable[[Iterable[Message]], Selection]:
    """The function that selects for `turns`. It raises SkipRow where a conversation has nothing to send.

    PermanentError for `last` on rows that are no agents' trajectories: recorded answers of chat data never become history.
    """
    if turns == "last" and not adapter.agent:
        raise PermanentError(
            f"turns: 'last' sends recorded answers as history, which adapter {adapter.name} does not allow: its answers are another "
            "model's; use 'first', or 'all' for the model's own history"
        )
    return {"first": first_turn, "last": last_turn, "all": all_turns}[turns]


def first_turn(messages: Iterable[Message]) -> Selection:
    """System messages and the first user turn."""
    if type(messages) is list and len(messages) == 1 and messages[0]["role"] == "user" and messages[0]["content"]:
        # Most rows of the largest sources: nothing to choose.
        return Selection(messages)
    return Selection(_opening(iter(messages))[0])


def all_turns(messages: Iterable[Message]) -> Selection:
    """The first user turn, and the user turns after it, as far as they can be asked again.

    The conversation ends before what cannot come about with other answers: a tool's result, or a system message in the middle.
    """
    stream = iter(messages)
    opening, ahead = _opening(stream)
    selection = Selection(opening)
    turn: list[Message] = []
    for message in itertools.chain(ahead, _until_fault(stream)):
        if message["role"] in ("tool", "system") or message.get("tool_calls") or (message["role"] == "user" and not message["content"]):
            break
        if message["role"] == "user":
            turn.append(message)
        elif turn:
            selection.later.append(_joined(turn))
            turn = []
    if turn:
        selection.later.append(_joined(turn))
    return selection


def last_turn(messages: Iterable[Message]) -> Selection:
    """Everything up to the last user or tool message, recorded answers included as history. All of it must be whole."""
    kept: list[Message] = []
    for message in messages:
        role = message["role"]
        if role == "user" and not message["content"]:
            raise SkipRow("empty_prompt")
        if role == "user" and kept and kept[-1]["role"] == "user":
            kept[-1] = _joined([kept[-1], message])
        elif (role != "system" or message["content"]) and (role in ("system", "user") or _has_user(kept)):
            kept.append(message)
    while kept and kept[-1]["role"] not in ("user", "tool"):
        kept.pop()
    if not _has_user(kept):
        raise SkipRow("no_user_turn")
    return Selection(kept)


def _has_user(messages: list[Message]) -> bool:
    return any(message["role"] == "user" for message in messages)


def _opening(stream: Iterator[Message]) -> tuple[list[Message], list[Message]]:
    """System text and the first user turn, without answers before it that answer nothing; and the message after it, where there is one.

    That message has to be looked at, because two user messages in a row are one turn.
    """
    ahead: list[Message] = []
    system: list[Message] = []
    users: list[Message] = []
    try:
        for message in stream:
            role = message["role"]
            if role == "user" and (message["content"] or not users):
                users.append(message)
                continue
            if users:
                ahead.append(message)
                break
            if role == "system" and message["content"]:
                system.append(message)
    except SkipRow:
        if not users:
            raise
    if not users:
        raise SkipRow("no_user_turn")
    if not users[0]["content"]:
        raise SkipRow("empty_prompt")
    return [*([_joined(system)] if system else []), _joined(users)], ahead


def _until_fault(stream: Iterator[Message]) -> Iterator[Message]:
    """Messages up to the first one that cannot be read."""
    try:
        yield from stream
    except SkipRow:
        return


def _joined(messages: list[Message]) -> Message:
    """Messages of one role in a row as one message, a blank line between them."""
    if len(messages) == 1:
        return messages[0]
    return {**messages[0], "content": "\n\n".join(message["content"] for message in messages)}
