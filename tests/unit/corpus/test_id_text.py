"""Ids read from text are those that the general reader finds, whatever else stands in the line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.corpus.id_text import prompt_ids, read_row_of_arrays
from draftmill.generation.response import Response
from draftmill.generation.rows import Unreadable, read_row
from draftmill.prompts.prompt import Prompt, content_id, input_hash

IDS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40)
CONFUSING = st.one_of(st.text(), st.sampled_from(['"output_ids":[1,2]', '"input_ids":[3]', "]", '","output_ids":[9],"x":"', "\\"]))


def response(output_ids: list[int], text: str, sent: list[int] | None = None) -> Response:
    return Response(
        id=content_id(text.encode(errors="surrogatepass")),
        input_hash=input_hash([1]),
        output_ids=output_ids,
        prompt_tokens=1,
        completion_tokens=len(output_ids),
        finish_reason="stop",
        rid=text,
        server=text,
        sampling={"stop": [text], text: 1},
        started_at=0.5,
        finished_at=1.5,
        conversation=text,
        input_ids=sent,
    )


def as_lists(row: Response) -> Response:
    return replace(row, output_ids=list(row.output_ids))


@given(IDS, CONFUSING.filter(lambda text: text.isprintable()), st.one_of(st.none(), IDS))
def test_a_response_is_read_as_it_was_written(output_ids: list[int], text: str, sent: list[int] | None) -> None:
    line = response(output_ids, text, sent).to_line()
    row = read_row_of_arrays(line)
    assert as_lists(row.response) == read_row(line).response == response(output_ids, text, sent)


@given(IDS, CONFUSING.filter(lambda text: text.isprintable()))
def test_the_ids_of_a_prompt_are_those_written(ids: list[int], text: str) -> None:
    prompt = Prompt(content_id(b"x"), ids, text, text, messages=[{"content": text, "input_ids": [7]}], later_turns=[{"content": text}])
    assert prompt_ids(prompt.to_line()).tolist() == ids


def test_a_row_of_an_older_layout_is_read_as_ever() -> None:
    line = b'{"id":"old","output_ids":[1,2],"prompt_tokens":3,"completion_tokens":2,"finish_reason":{"type":"stop"}}\n'
    assert read_row_of_arrays(line) == read_row(line)


@pytest.mark.parametrize("place", [3, 12, 40, -5])
def test_damage_is_found(place: int) -> None:
    line = bytearray(response([5, 6, 7], "x").to_line())
    line[place] ^= 1
    with pytest.raises(Unreadable):
        read_row_of_arrays(bytes(line))
