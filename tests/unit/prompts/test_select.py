"""Which part of a conversation is sent."""

from __future__ import annotations

from typing import Any

import pytest

from draftmill.errors import PermanentError
from draftmill.prompts.select import all_turns, first_turn, last_turn, selector
from draftmill.sources.adapters import make_adapter
from draftmill.sources.chat import Message, SkipRow, messages_of


def chat(*turns: Any) -> list[Message]:
    """`"u:text"` and so on; None stands for an entry that cannot be read."""
    names = {"u": "user", "a": "assistant", "s": "system", "t": "tool"}
    return [{"role": names[turn[0]], "content": turn[2:]} for turn in turns]


def texts(messages: list[Message]) -> list[str]:
    return [f"{message['role'][0]}:{message['content']}" for message in messages]


@pytest.mark.parametrize(
    ("turns", "sent"),
    [
        (["u:q"], ["u:q"]),
        (["u:q", "a:r", "u:q2"], ["u:q"]),
        (["s:x", "u:q", "a:r"], ["s:x", "u:q"]),
        (["s:x", "s:y", "u:q"], ["s:x\n\ny", "u:q"]),
        (["s:", "u:q"], ["u:q"]),
        (["a:greeting", "u:q"], ["u:q"]),
        (["u:q", "u:more", "a:r"], ["u:q\n\nmore"]),
        (["u:q", "u:", "a:r"], ["u:q"]),
        (["u:q", "s:late", "a:r", "u:q2"], ["u:q"]),
    ],
)
def test_first_turn(turns: list[str], sent: list[str]) -> None:
    assert texts(first_turn(chat(*turns)).messages) == sent


@pytest.mark.parametrize("select", [first_turn, all_turns, last_turn])
@pytest.mark.parametrize(
    ("turns", "reason"),
    [(["a:only"], "no_user_turn"), (["s:x"], "no_user_turn"), (["u:"], "empty_prompt"), (["u:", "a:r", "u:again"], "empty_prompt")],
)
def test_nothing_to_send(select: Any, turns: list[str], reason: str) -> None:
    with pytest.raises(SkipRow, match=reason):
        select(chat(*turns))


def test_what_comes_after_the_first_turn_cannot_spoil_it() -> None:
    entries = [{"role": "user", "content": "q"}, 7, {"role": "user", "content": "q2"}]
    assert texts(first_turn(messages_of(entries)).messages) == ["u:q"]
    assert all_turns(messages_of(entries)).later == []
    with pytest.raises(SkipRow, match="malformed_turn"):
        first_turn(messages_of([7, {"role": "user", "content": "q"}]))


@pytest.mark.parametrize(
    ("turns", "later"),
    [
        (["u:q", "a:r", "u:q2", "a:r2", "u:q3"], ["u:q2", "u:q3"]),
        (["u:q", "a:r", "u:q2", "u:q2b", "a:r2"], ["u:q2\n\nq2b"]),
        (["u:q", "a:r", "s:new rules", "u:q2"], []),
        (["u:q", "s:new rules", "a:r", "u:q2"], []),
        (["u:q", "a:r", "t:result", "u:q2"], []),
        (["u:q", "a:r", "u:", "a:r2", "u:q3"], []),
        (["u:q", "a:r"], []),
    ],
)
def test_later_turns_end_where_they_depend_on_the_recorded_answers(turns: list[str], later: list[str]) -> None:
    selection = all_turns(chat(*turns))
    assert texts(selection.messages) == ["u:q"]
    assert texts(selection.later) == later


def test_a_recorded_tool_call_ends_the_turns_that_can_be_asked_again() -> None:
    called = {"role": "assistant", "content": "", "tool_calls": [{"id": "x"}]}
    assert all_turns([*chat("u:q"), called, *chat("u:q2")]).later == []


@pytest.mark.parametrize(
    ("turns", "sent"),
    [
        (["s:x", "u:q", "a:r", "t:out"], ["s:x", "u:q", "a:r", "t:out"]),
        (["u:q", "a:r", "u:q2", "a:final", "a:more"], ["u:q", "a:r", "u:q2"]),
        (["a:greeting", "u:q", "u:q1", "a:r", "u:q2"], ["u:q\n\nq1", "a:r", "u:q2"]),
        (["u:q", "a:r", "s:late", "u:q2"], ["u:q", "a:r", "s:late", "u:q2"]),
    ],
)
def test_last_turn_keeps_the_history(turns: list[str], sent: list[str]) -> None:
    assert texts(last_turn(chat(*turns)).messages) == sent


def test_every_prompt_ends_in_a_user_or_tool_turn() -> None:
    for select in (first_turn, all_turns, last_turn):
        assert select(chat("s:x", "u:q", "a:r", "u:q2", "a:r2")).messages[-1]["role"] in ("user", "tool")


def test_recorded_answers_become_history_of_agents_only() -> None:
    for name in ("sweagent", "swesmith", "glaive"):
        assert selector("last", make_adapter(name)) is last_turn
    with pytest.raises(PermanentError, match="'last' sends recorded answers"):
        selector("last", make_adapter("sharegpt"))
