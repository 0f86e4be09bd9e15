"""A row and its line."""

from __future__ import annotations

import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st

from draftmill.corpus.record import Head, Row

IDS = st.lists(st.integers(0, 163_839), min_size=1, max_size=50)


def make_row(prompt: list[int], output: list[int], **changes: object) -> Row:
    values = {
        "id": "a" * 32,
        "dataset": "alpha",
        "conversation": "c" * 32,
        "turn": 0,
        "prompt_tokens": len(prompt),
        "completion_tokens": len(output),
        "finish_reason": "stop",
    }
    return Row(Head(**(values | changes)), np.array(prompt + output, dtype=np.int32))


@given(st.lists(st.integers(0, 163_839), max_size=50), IDS, st.text(max_size=20))
def test_the_line_is_the_row(prompt: list[int], output: list[int], conversation: str) -> None:
    row = make_row(prompt, output, conversation=conversation)
    line = b"".join(row.line())
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert orjson.loads(line) == {
        **row.head.to_json(),
        "input_ids": prompt + output,
        "loss_mask": [0] * len(prompt) + [1] * len(output),
    }


def test_parts_are_told_apart() -> None:
    row = make_row([1, 2, 3], [4, 5])
    assert row.prompt_ids.tolist() == [1, 2, 3]
    assert row.output_ids.tolist() == [4, 5]
    assert row.head.tokens == 5
