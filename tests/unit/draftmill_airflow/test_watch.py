"""Which questions are asked, and which lines a task log gets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.jobs.models import JobKey, JobStatus
from draftmill_airflow.watch import (
    BURST_BYTES,
    BYTES_PER_S,
    LEAST_BYTES,
    LINE_CHARACTERS,
    MOST_BYTES,
    JobWatch,
    LogAllowance,
    progress_line,
)

KEY = JobKey(campaign="c", task="generate", dataset="d")


def status(**values: Any) -> JobStatus:
    return JobStatus(key=KEY, **({"state": "running", "attempt": 1} | values))


def watch(**values: Any) -> JobWatch:
    return JobWatch("/w", KEY, 0, **values)


def test_the_first_question_takes_up_what_the_host_remembers() -> None:
    request = watch(seen=70, attempt=2).request(0, 30, 60)
    assert (request.log_offset, request.seen, request.attempt) == (None, 70, 2)
    assert (request.wait_s, request.quiet_s) == (30, 30)


def test_the_next_question_starts_where_the_last_answer_ended() -> None:
    found = watch()
    assert found.see(status(log="a\nb\n", log_offset=4), 1) == ["a", "b"]
    request = found.request(1, 30, 5)
    assert (request.log_offset, request.attempt, found.seen) == (4, 1, (4, 1))


def test_it_is_finished_only_after_the_last_line() -> None:
    found = watch()
    assert not found.finished
    found.see(status(state="done", more=True), 1)
    assert not found.finished
    found.see(status(state="done"), 2)
    assert found.finished


def test_no_answer_yet() -> None:
    with pytest.raises(RuntimeError, match="no answer yet"):
        _ = watch().last


def test_what_was_left_out_is_said() -> None:
    assert watch().see(status(log="end\n", log_skipped_bytes=12345), 1) == [
        "... 12,345 bytes of the job's log are left out here; the host has them ...",
        "end",
    ]


def test_long_lines_are_cut() -> None:
    (line,) = watch().see(status(log="x" * 5000), 1)
    assert line == "x" * LINE_CHARACTERS + " ... (5,000 characters)"


def test_another_attempt_is_announced() -> None:
    found = watch()
    found.see(status(log="old\n", log_offset=4), 1)
    assert found.see(status(attempt=2, log="new\n", log_offset=4), 2) == [
        f"{KEY} was started again on the host; from here on, attempt 2",
        "new",
    ]


def test_a_silent_job_shows_its_progress_once_a_minute() -> None:
    found = watch()
    said = [line for now in range(0, 300, 5) for line in found.see(status(progress={"message": "at work", "at": 1.0, "tokens": 1000}), now)]
    assert said == ["c/generate/d: at work (tokens 1,000)"] * 4


def test_a_talking_job_needs_no_progress_line() -> None:
    found = watch()
    assert [line for now in range(0, 300, 30) for line in found.see(status(log="x\n"), now)] == ["x"] * 10


def stalls(progress_at: Any) -> list[str]:
    found = watch()
    said = [line for now in range(0, 2000, 50) for line in found.see(status(log="x\n", progress=progress_at(now)), now)]
    return [line for line in said if "no new token" in line]


def test_generation_that_stands_still_is_told_of() -> None:
    assert stalls(lambda now: {"tokens": 5, "in_flight": 3}) == [
        f"{KEY}: no new token for {minutes} min with 3 requests in flight; see the server's log" for minutes in (10, 20, 30)
    ]


def test_generation_that_moves_or_waits_for_its_turn_is_not() -> None:
    assert stalls(lambda now: {"tokens": now // 500, "in_flight": 3}) == []
    assert stalls(lambda now: {"tokens": 5, "in_flight": 0}) == []
    assert stalls(lambda now: None) == []


def test_a_stall_is_there_to_be_told_of_once_however_often_it_is_logged() -> None:
    """Tokens move until 500, stand still until 2500, move once, and stand still again; the job is asked every 50 s."""
    found, told, logged = watch(), {}, 0
    for now in range(0, 5000, 50):
        tokens = min(now, 500) if now < 2500 else 1000
        lines = found.see(status(log="x\n", progress={"tokens": tokens, "in_flight": 3}), now)
        logged += sum("no new token" in line for line in lines)
        if stall := found.take_stall():
            told[now] = stall
    assert told == dict.fromkeys((500 + 600, 2500 + 600), f"{KEY}: no new token for 10 min with 3 requests in flight; see the server's log")
    assert logged == 3 + 4


def test_a_stall_that_is_over_is_not_told_of_any_more() -> None:
    found = watch()
    found.see(status(progress={"tokens": 1, "in_flight": 3}), 0)
    found.see(status(progress={"tokens": 1, "in_flight": 3}), 700)
    found.see(status(progress={"tokens": 2, "in_flight": 3}), 710)
    assert found.take_stall() is None


def test_progress_of_a_job_that_has_said_nothing() -> None:
    assert progress_line(status()) == "c/generate/d: running"
    assert (
        progress_line(status(progress={"message": "m", "rate": 1234.56, "eta": None, "who": "x"}))
        == "c/generate/d: m (rate 1,234.6, who x)"
    )


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 200_000)), max_size=60))
def test_a_log_stays_within_its_allowance(steps: list[tuple[float, int]]) -> None:
    """However a job prints: never more than the burst, the rate over the time, and the least of each answer."""
    allowance, now, taken = LogAllowance(0), 0.0, 0
    for passed, wanted in steps:
        now += passed
        size = allowance.next(now)
        assert LEAST_BYTES <= size <= MOST_BYTES
        taken += min(size, wanted)
        allowance.spend(min(size, wanted))
    assert taken <= BURST_BYTES + BYTES_PER_S * now + LEAST_BYTES * len(steps)
