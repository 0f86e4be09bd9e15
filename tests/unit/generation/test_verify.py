from __future__ import annotations

from typing import Any

import orjson
import pytest

from draftmill.generation.faults import RequestFault
from draftmill.generation.verify import Answer, Expected, verify

PROMPT = [7, 8, 9]
EXPECTED = Expected(3, lambda count: PROMPT[-count:], max_new_tokens=5, vocab_size=100, eos_ids={2})


def body(ids: Any = (11, 12, 2), finish: Any = {"type": "stop", "matched": 2}, count: Any = None, **meta: Any) -> dict[str, Any]:  # noqa: B006
    ids = list(ids) if isinstance(ids, tuple) else ids
    counts = {"completion_tokens": len(ids) if count is None and ids else count, "prompt_tokens": 3}
    return {"text": "x", "output_ids": ids, "meta_info": {"id": "r", "finish_reason": finish} | counts | meta}


def check(value: Any, expected: Expected = EXPECTED) -> Answer:
    return verify(orjson.dumps(value), expected)


def test_a_sound_answer_is_taken_as_it_is() -> None:
    assert check(body()) == Answer([11, 12, 2], "stop", 0)
    assert check([body()]) == Answer([11, 12, 2], "stop", 0)


def test_ids_inside_meta_info_and_a_plain_reason_are_accepted() -> None:
    old = body(finish="stop")
    old["meta_info"]["output_ids"] = old.pop("output_ids")
    assert check(old) == Answer([11, 12, 2], "stop", 0)


def test_a_null_reason_is_settled_by_the_ids() -> None:
    assert check(body(finish=None)).finish_reason == "stop"
    assert check(body((1, 3, 4, 5, 6), finish=None)).finish_reason == "length"
    with pytest.raises(RequestFault) as caught:
        check(body((1, 3), finish=None))
    assert caught.value.kind == "unfinished"


def test_as_many_tokens_as_allowed_is_length_whatever_the_reason_says() -> None:
    assert check(body((1, 3, 4, 5, 2))).finish_reason == "length"


def test_the_prompts_tail_is_taken_off_and_counted() -> None:
    assert check(body((8, 9, 11, 2), count=2)) == Answer([11, 2], "stop", 2)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (body((5, 9, 11, 2), count=2), "wrong_count"),
        (body((1, 2), count=3), "wrong_count"),
        (body((1, 2), count=0), "wrong_count"),
        (body((1, 100)), "foreign_id"),
        (body((-1, 2)), "foreign_id"),
        (body(("a", 2)), "foreign_id"),
        (body(()), "no_ids"),
        (body(None), "no_ids"),
        (body(count=True), "no_ids"),
        (body(prompt_tokens=2), "wrong_prompt"),
        (body(finish={"type": "abort", "message": "Aborted"}), "aborted"),
        (body(finish="abort"), "aborted"),
        (body(finish={"type": "abort", "message": "Out of memory even after retracting"}), "out_of_memory"),
        (body(finish={"type": "error"}), "unfinished"),
        ({"error": {"message": "no"}}, "error_body"),
        ({"output_ids": [1]}, "error_body"),
        ([], "error_body"),
        (None, "error_body"),
    ],
)
def test_what_is_not_sound_is_a_fault_of_its_kind(value: Any, kind: str) -> None:
    with pytest.raises(RequestFault) as caught:
        check(value)
    assert caught.value.kind == kind


def test_a_body_that_is_not_json_is_no_answer() -> None:
    with pytest.raises(RequestFault) as caught:
        verify(b"<html>", EXPECTED)
    assert caught.value.kind == "error_body"
