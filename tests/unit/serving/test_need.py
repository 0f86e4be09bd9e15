from __future__ import annotations

from draftmill.serving.endpoint import Endpoint
from draftmill.serving.need import capacity_fault, concurrency_note
from tests.plans import make_dataset, make_plan

PLAN = make_plan(
    make_dataset("short", max_new_tokens=10_240, max_prompt_tokens=2_000, in_flight=150, expected_tokens=1_500),
    make_dataset("long", max_new_tokens=16_384, in_flight=32, expected_tokens=4_000, length_class="long"),
)


def endpoint(capacity: int | None) -> Endpoint:
    return Endpoint("http://x", "hidden", "/m", "m", "0.5", "f", 1, capacity, None, None, None)


def test_a_cache_below_the_longest_request_is_refused() -> None:
    fault = capacity_fault(PLAN, endpoint(4_578))
    assert fault is not None
    assert "its KV cache holds 4,578 tokens, and one request of long may need 16,384" in fault
    assert capacity_fault(PLAN, endpoint(16_383)) is not None
    assert capacity_fault(PLAN, endpoint(16_384)) is None
    assert capacity_fault(PLAN, endpoint(None)) is None


def test_less_at_once_than_wanted_is_said() -> None:
    note = concurrency_note(PLAN, endpoint(159_000))
    assert note is not None
    assert "about 39 answers of 4,000 tokens at once, and 150 are wanted" in note
    assert concurrency_note(PLAN, endpoint(1_000_000)) is None
    assert concurrency_note(PLAN, endpoint(None)) is None
    assert concurrency_note(make_plan(), endpoint(1000)) is None


def test_a_key_is_not_shown() -> None:
    assert "hidden" not in repr(endpoint(1))
