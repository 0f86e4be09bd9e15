"""Function definitions and calls, from whatever form they come in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.sources.tools import BrokenTools, ToolIds, definitions, plain, tool_calls

FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
DEFINITION = {"type": "function", "function": FUNCTION}


@pytest.mark.parametrize(
    "value",
    [
        [DEFINITION],
        [FUNCTION],
        DEFINITION,
        json.dumps([DEFINITION]),
        json.dumps(FUNCTION),
        [json.dumps(FUNCTION)],
        [{"type": "function", "function": {**FUNCTION, "strict": None}}],
    ],
)
def test_definitions_come_in_many_forms_and_leave_in_one(value: Any) -> None:
    assert definitions(value) == [DEFINITION]


@pytest.mark.parametrize("value", [None, "", "  ", [], {}, "[]", "null"])
def test_no_definitions(value: Any) -> None:
    assert definitions(value) is None


@pytest.mark.parametrize("value", ["{broken", "3", [{"description": "no name"}], [["f"]], ["{broken"], 7, True])
def test_what_is_no_definition_is_broken(value: Any) -> None:
    with pytest.raises(BrokenTools):
        definitions(value)


def test_added_nulls_and_widened_numbers_go() -> None:
    assert plain({"a": None, "b": [1.0, None, {"c": None, "d": 2.5}], "e": ()}) == {"b": [1, {"d": 2.5}], "e": []}


@given(st.recursive(st.none() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(), lambda x: st.lists(x) | st.tuples(x)))
def test_plain_values_stay_as_they_are_when_plain_again(value: Any) -> None:
    assert plain(plain(value)) == plain(value)


def test_calls_get_ids_of_the_form_that_kimi_is_trained_on() -> None:
    ids = ToolIds()
    calls = tool_calls(
        [
            {"id": "call_a", "type": "function", "function": {"name": "open", "arguments": '{"path": "x"}'}},
            {"id": "call_b", "function": {"name": "run", "arguments": {"cmd": "ls", "timeout": None}}},
            {"id": "call_c", "function": {"name": "say", "arguments": "no json"}},
            "noise",
            {"function": {"arguments": "{}"}},
        ],
        ids,
    )
    assert [call["id"] for call in calls] == ["functions.open:0", "functions.run:1", "functions.say:2"]
    assert [call["function"]["arguments"] for call in calls] == [{"path": "x"}, {"cmd": "ls"}, "no json"]
    assert ids.answered({"tool_call_id": "call_b"}) == "functions.run:1"
    assert ids.answered({"tool_call_ids": ["call_a"]}) == "functions.open:0"
    assert ids.answered({}) == "functions.say:2", "an answer that names no call belongs to the oldest open one"
    assert ids.answered({"name": "clock"}) == "clock"
