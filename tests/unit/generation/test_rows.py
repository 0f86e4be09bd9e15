from __future__ import annotations

import dataclasses
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.generation.response import Response
from draftmill.generation.rows import Unreadable, read_row
from tests.unit.generation.rows import make_row

text = st.text(max_size=20)
responses = st.builds(
    Response,
    id=st.text(min_size=1, max_size=40),
    input_hash=text,
    output_ids=st.lists(st.integers(0, 163_839), max_size=30),
    prompt_tokens=st.integers(0, 10**9),
    completion_tokens=st.integers(0, 10**9),
    finish_reason=st.sampled_from(["stop", "length"]),
    rid=text,
    server=text,
    sampling=st.dictionaries(text, st.integers(0, 9), max_size=3),
    started_at=st.floats(0, 2e9),
    finished_at=st.floats(0, 2e9),
    conversation=text,
    turn=st.integers(0, 9),
    input_ids=st.none() | st.lists(st.integers(0, 163_839), max_size=5),
)


@given(responses)
def test_a_row_comes_back_as_it_was_written(response: Response) -> None:
    line = response.to_line()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    row = read_row(line)
    assert (row.response, row.older, row.skipped) == (response, False, 0)


def test_a_row_is_plain_json_with_the_field_names_of_a_response() -> None:
    response = make_row(1)
    row = orjson.loads(response.to_line())
    assert row.pop("check")
    assert row == {name: value for name, value in dataclasses.asdict(response).items() if name != "input_ids"}
    later = orjson.loads(make_row(1, turn=1, input_ids=[1, 2]).to_line())
    assert later["input_ids"] == [1, 2]


@given(st.integers(0, 400), st.integers(1, 255))
def test_one_changed_byte_anywhere_is_noticed(place: int, change: int) -> None:
    line = bytearray(make_row(2, tokens=12).to_line())
    place %= len(line) - 1
    line[place] ^= change
    if line[place] in b"\n\r":
        return
    with pytest.raises(Unreadable):
        read_row(bytes(line))


@pytest.mark.parametrize("before", [b"\x00" * 4096, b'{"check":"0123', make_row(5).to_line()[:100]])
def test_a_sound_row_behind_damage_on_its_line_is_found(before: bytes) -> None:
    response = make_row(3)
    row = read_row(before + response.to_line())
    assert row.response == response
    assert row.skipped == len(before)


def test_blanks_before_a_row_are_no_damage() -> None:
    row = read_row(b"   " + make_row(3).to_line())
    assert (row.response, row.skipped) == (make_row(3), 0)


OLDER: list[dict[str, Any]] = [
    {"id": "a", "output_ids": [1, 2, 3], "usage": {"prompt_tokens": 7, "completion_tokens": 3}, "finish_reason": "stop"},
    {
        "id": "a",
        "meta_info": {"id": "r", "output_ids": [1, 2, 3], "completion_tokens": 3, "prompt_tokens": 7, "finish_reason": {"type": "stop"}},
    },
    {"id": "a", "response": {"output_ids": [1, 2, 3], "meta_info": {"completion_tokens": 3, "prompt_tokens": 7, "finish_reason": None}}},
    {"id": "a", "output_ids": [1, 2, 3], "prompt_tokens": 7},
]


@pytest.mark.parametrize("row", OLDER)
def test_older_layouts_are_read(row: dict[str, Any]) -> None:
    read = read_row(orjson.dumps(row) + b"\n")
    assert read.older
    response = read.response
    assert (response.id, response.output_ids, response.completion_tokens, response.prompt_tokens) == ("a", [1, 2, 3], 3, 7)
    assert response.finish_reason == "stop"


def test_an_older_row_with_text_alone_counts_its_tokens() -> None:
    row = {"id": "a", "choices": [{"finish_reason": "length", "message": {"content": "x"}}], "usage": {"completion_tokens": 40}}
    response = read_row(orjson.dumps(row)).response
    assert (response.output_ids, response.completion_tokens, response.finish_reason) == ([], 40, "length")


def test_an_older_row_that_reached_its_limit_ended_by_length() -> None:
    row = {"id": "a", "output_ids": [1, 2], "sampling_params": {"max_new_tokens": 2}, "finish_reason": "stop"}
    assert read_row(orjson.dumps(row)).response.finish_reason == "length"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"x",
        b"[1]",
        b"{}",
        b'{"id":"a"}',
        b'{"id":1,"output_ids":[1]}',
        b'{"id":"a","output_ids":[1],"finish_reason":{"type":"abort"}}',
        b'{"id":"a","completion_tokens":0}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_finished_response_is_refused(line: bytes) -> None:
    with pytest.raises(Unreadable):
        read_row(line)
