"""Messages in all the usual spellings, and what makes a row unusable."""

from __future__ import annotations

from typing import Any

import pytest

from draftmill.sources.chat import SkipRow, messages_of, text_of


def test_the_words_and_keys_of_published_sets() -> None:
    entries = [
        {"from": "system", "value": "s"},
        {"from": "human", "value": " q \r\n"},
        {"from": "gpt", "value": "a"},
        {"role": "User", "content": "q2"},
        {"role": "bing", "text": "b"},
        {"from": "bard", "value": "c"},
        {"role": "chatgpt", "content": "d"},
        {"role": "ai", "text": "e"},
    ]
    roles = ["system", "user", "assistant", "user", "assistant", "assistant", "assistant", "assistant"]
    assert [message["role"] for message in messages_of(entries)] == roles
    assert [message["content"] for message in messages_of(entries)] == ["s", "q", "a", "q2", "b", "c", "d", "e"]


def test_content_as_parts_and_null_content_beside_calls() -> None:
    entries = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, "c"]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "content": "r", "tool_call_id": "1"},
    ]
    user, assistant, tool = messages_of(entries)
    assert user["content"] == "abc"
    assert assistant["content"] == ""
    assert tool == {"role": "tool", "content": "r", "tool_call_id": "functions.f:0"}


def test_null_values_that_parquet_adds_hide_nothing() -> None:
    entries = [{"role": None, "from": "human", "content": None, "value": "q", "tool_calls": None}]
    assert list(messages_of(entries)) == [{"role": "user", "content": "q"}]


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        (None, "empty_conversation"),
        ([], "empty_conversation"),
        ("text", "empty_conversation"),
        (["a turn that is a string"], "malformed_turn"),
        ([{"content": "no role"}], "malformed_turn"),
        ([{"role": 3, "content": "x"}], "malformed_turn"),
        ([{"role": "narrator", "content": "x"}], "unknown_role"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}], "not_text"),
        ([{"role": "user", "content": {"a": 1}}], "not_text"),
        ([{"role": "user", "content": 5}], "not_text"),
    ],
)
def test_what_cannot_be_used_is_skipped_with_a_reason(entries: Any, reason: str) -> None:
    with pytest.raises(SkipRow) as caught:
        list(messages_of(entries))
    assert caught.value.reason == reason


def test_a_fault_behind_what_is_read_spoils_nothing() -> None:
    messages = messages_of([{"role": "user", "content": "q"}, "broken"])
    assert next(messages) == {"role": "user", "content": "q"}


def test_line_ends_become_line_feeds() -> None:
    assert text_of("a\r\nb\rc\n") == "a\nb\rc\n"
