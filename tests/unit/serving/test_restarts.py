from __future__ import annotations

from typing import Any

from draftmill.serving.diagnosis import Diagnosis
from draftmill.serving.restarts import RestartPolicy
from draftmill.spec.server import ServerProfile

CRASH = Diagnosis("exception", "it crashed", "", "temporary")
OTHER = Diagnosis("nccl", "it lost a GPU", "", "temporary")
BAD_FLAG = Diagnosis("unsupported_flag", "it refused a flag", "", "permanent")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def policy(**changes: Any) -> tuple[RestartPolicy, Clock]:
    values = {"model_path": "m", "max_restarts": 3, "restart_window_s": 100, "restart_backoff_s": 5} | changes
    clock = Clock()
    return RestartPolicy(ServerProfile.model_validate(values), clock), clock


def test_waits_grow_and_restarts_are_bounded() -> None:
    rule, _ = policy()
    assert [rule.wait_s(CRASH, loaded=True) for _ in range(5)] == [5, 10, 20, None, None]


def test_waits_have_a_limit() -> None:
    rule, _ = policy(max_restarts=20)
    assert max(rule.wait_s(CRASH, loaded=True) or 0 for _ in range(20)) == 120


def test_old_restarts_are_forgiven() -> None:
    rule, clock = policy(max_restarts=1)
    assert rule.wait_s(CRASH, loaded=True) == 5
    assert rule.wait_s(CRASH, loaded=True) is None
    clock.now = 101
    assert rule.wait_s(CRASH, loaded=True) == 5


def test_what_needs_a_person_is_given_up_at_once() -> None:
    rule, _ = policy()
    assert rule.wait_s(BAD_FLAG, loaded=True) is None


def test_failing_to_load_twice_for_one_cause_is_enough() -> None:
    rule, _ = policy()
    assert rule.wait_s(CRASH, loaded=False) == 5
    assert rule.wait_s(OTHER, loaded=False) == 10
    assert rule.wait_s(OTHER, loaded=False) is None


def test_an_exception_at_every_load_needs_a_person() -> None:
    rule, _ = policy()
    other = Diagnosis("exception", "another one", "", "temporary")
    assert rule.wait_s(CRASH, loaded=False) == 5
    assert rule.wait_s(other, loaded=False) == 10
    assert rule.verdict(other) == other
    assert rule.wait_s(other, loaded=False) is None
    assert rule.verdict(other).kind == "permanent"
    assert "it came twice while loading" in rule.verdict(other).advice


def test_a_lost_gpu_at_every_load_may_pass() -> None:
    rule, _ = policy()
    assert rule.wait_s(OTHER, loaded=False) == 5
    assert rule.wait_s(OTHER, loaded=False) is None
    assert rule.verdict(OTHER) == OTHER


def test_having_been_ready_forgives_a_failure_to_load() -> None:
    rule, _ = policy()
    assert rule.wait_s(CRASH, loaded=False) == 5
    rule.was_ready()
    assert rule.wait_s(CRASH, loaded=False) == 10


def test_no_restart_at_all() -> None:
    rule, _ = policy(max_restarts=0)
    assert rule.wait_s(CRASH, loaded=True) is None
