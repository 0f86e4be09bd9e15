"""The bytes that ids are made of."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.prompts.canonical import canonical, encode_questions, encode_selection
from draftmill.prompts.select import Selection
from draftmill.sources.chat import SkipRow

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None, exclude_categories=())),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def ask(text: str) -> Selection:
    return Selection([{"role": "user", "content": text}])


def test_keys_are_sorted_and_text_is_kept() -> None:
    assert canonical([{"b": "é\u2028", "a": 1}]) == ('[{"a":1,"b":"é\u2028"}]'.encode(), [])


def test_lone_surrogates_become_replacement_characters_and_pairs_are_joined() -> None:
    line, repaired = canonical(["a\ud83db", "\ud83d\ude00"])
    assert orjson.loads(line) == ["a\ufffdb", "\U0001f600"]
    assert repaired == ["surrogate"]


def test_nul_characters_go() -> None:
    line, repaired = canonical({"a": "x\x00y", "b\x00": "\\u0000"})
    assert orjson.loads(line) == {"a": "xy", "b": "\\u0000"}
    assert repaired == ["nul"]
    assert canonical(["\\u0000"])[1] == [], "the escape written out is text"


def test_a_prompt_of_nothing_but_nul_is_empty() -> None:
    with pytest.raises(SkipRow, match="empty_prompt"):
        encode_selection(ask("\x00"), None, None)


@given(ANY)
def test_any_value_gives_json_or_a_reason(value: Any) -> None:
    line, _ = canonical(value)
    again, repaired = canonical(orjson.loads(line))
    assert again == line
    assert repaired == []


def test_too_deep_is_a_reason() -> None:
    value: Any = []
    for _ in range(600):
        value = [value]
    with pytest.raises(SkipRow, match="nested_too_deeply"):
        canonical(value)


def test_the_id_is_made_of_what_the_first_request_sends() -> None:
    later = Selection(ask("q").messages, [{"role": "user", "content": "more"}])
    payload, basis, _ = encode_selection(later, None, None)
    plain_payload, plain_basis, _ = encode_selection(ask("q"), None, None)
    assert basis == plain_basis
    assert payload != plain_payload
    assert encode_selection(ask("q"), [{"type": "function"}], None)[1] != basis, "tools are sent, too"


def test_an_identity_replaces_the_messages() -> None:
    system = {"role": "system", "content": "xml"}
    both = [encode_selection(Selection([*first, *ask("task").messages]), None, lambda messages: messages[-1:]) for first in ([], [system])]
    assert both[0][1] == both[1][1]
    assert both[0][0] != both[1][0]


@given(st.text(st.characters(codec=None, exclude_categories=(), exclude_characters="\x00"), min_size=1).filter(str.strip))
def test_the_shortcut_for_single_questions_says_the_same(text: str) -> None:
    try:
        (line,) = encode_questions([text])
    except TypeError:
        assert "surrogate" in canonical([text])[1]
        return
    payload, basis, _ = encode_selection(ask(text), None, None)
    assert line == payload == basis
