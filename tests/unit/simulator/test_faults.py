from __future__ import annotations

import pytest

from draftmill.errors import PermanentError
from draftmill.simulator.faults import Fault, Schedule


def test_text_form() -> None:
    assert Fault.parse("abort") == Fault("abort")
    assert Fault.parse("slow:at_s=60,for_s=30,value=5") == Fault("slow", at_s=60.0, for_s=30.0, value=5.0)
    assert Fault.parse("other_model:value=some/model,after=3") == Fault("other_model", after=3, value="some/model")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("flood", "'flood' is unknown; known: abort"),
        ("abort:after", "must be key=value"),
        ("abort:after=soon", "after: 'soon' is not a number"),
        ("abort:color=red", "must be an object with 'kind'"),
        ("slow:value=much", "'much' is not a number"),
    ],
)
def test_a_wrong_text_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(PermanentError, match=says):
        _ = Fault.parse(text).number


def test_request_faults_begin_after_and_end_by_count() -> None:
    schedule = Schedule([Fault("abort", after=2, count=2), Fault("reset", after=3, count=1)])
    hit = [fault.kind if (fault := schedule.for_request(0.0)) else None for _ in range(6)]
    assert hit == [None, None, "abort", "abort", "reset", None]


def test_after_counts_from_the_moment_of_asking() -> None:
    schedule = Schedule()
    schedule.for_request(0.0)
    schedule.add([Fault("abort", after=1)])
    assert schedule.for_request(0.0) is None
    assert schedule.for_request(0.0) == Fault("abort", after=1)


def test_a_share_is_drawn_by_seed() -> None:
    def hits(seed: int) -> list[bool]:
        schedule = Schedule([Fault("status", count=None, share=0.25, seed=seed)])
        return [schedule.for_request(0.0) is not None for _ in range(2_000)]

    assert hits(1) == hits(1) != hits(2)
    assert sum(hits(1)) == pytest.approx(500, rel=0.15)


def test_state_faults_begin_and_end_by_the_clock() -> None:
    slow = Fault("slow", at_s=10, for_s=5)
    schedule = Schedule([slow])
    assert schedule.next_change(0.0) == 10
    assert schedule.changes(9.0).begun == []
    assert schedule.changes(10.0).begun == [slow]
    assert schedule.next_change(10.0) == 15
    assert schedule.changes(12.0).begun == []
    assert schedule.changes(15.0).over == [slow]
    assert schedule.next_change(15.0) is None


def test_clearing_returns_what_was_at_work() -> None:
    schedule = Schedule([Fault("silent"), Fault("slow", at_s=99)])
    schedule.changes(0.0)
    assert schedule.clear() == [Fault("silent")]
    assert schedule.next_change(0.0) is None
