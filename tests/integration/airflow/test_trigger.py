"""The trigger under asyncio, against a real sshd and real jobs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from draftmill_airflow import outage, trigger
from draftmill_airflow.errors import CodeMissing, HostRefused, JobLost
from draftmill_airflow.host import Host
from draftmill_airflow.outcome import conclude
from draftmill_airflow.trigger import RemoteJobTrigger
from tests.integration.airflow.conftest import look, order_for
from tests.integration.airflow.test_operator import defer, operator
from tests.integration.rehearsal import tell
from tests.integration.sshd import Sshd, make_key

TriggerOf = Callable[..., RemoteJobTrigger]


class Lines(logging.Handler):
    """What a task log would show."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __contains__(self, text: str) -> bool:
        return any(text in line for line in self.lines)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """The log of every trigger that the test makes."""
    handler = Lines()
    logger = logging.Logger("trigger")  # noqa: LOG001 - one of its own for each test
    logger.addHandler(handler)
    monkeypatch.setattr(RemoteJobTrigger, "log", logger)
    return handler


def started(order: Any, **changes: Any) -> RemoteJobTrigger:
    """Start the job and take the trigger that its task defers to."""
    deferred: TaskDeferred = defer(operator(order, inline_s=0, **changes))
    found = deferred.trigger
    assert isinstance(found, RemoteJobTrigger)
    return again(found, least_s=0)


def again(found: RemoteJobTrigger, **changes: Any) -> RemoteJobTrigger:
    """The trigger as a triggerer makes it, from what was stored."""
    _, kwargs = found.serialize()
    return RemoteJobTrigger(**(kwargs | changes))


async def event_of(found: RemoteJobTrigger, timeout_s: float = 90) -> dict[str, Any]:
    async def first() -> dict[str, Any]:
        async for event in found.run():
            return dict(event.payload)
        raise AssertionError("no event")

    return await asyncio.wait_for(first(), timeout_s)


async def until(condition: Callable[[], bool], timeout_s: float = 30) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def running(found: RemoteJobTrigger) -> Any:
    """The trigger as a task of the loop, cancelled at the end as a triggerer does when it shuts down."""
    task = asyncio.create_task(event_of(found))
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_it_shows_the_log_to_the_last_line_and_fires_with_the_result(host: Host, shown: Lines) -> None:
    event = await event_of(started(order_for(budget_tokens=200, expected_tokens=100)))
    assert conclude(event)["completion_tokens"] == 200
    assert "row" in shown
    assert "done after" in shown.lines[-1]


async def test_it_does_not_fire_in_its_first_seconds(host: Host, shown: Lines) -> None:
    began = asyncio.get_running_loop().time()
    await event_of(again(started(order_for(budget_tokens=20)), least_s=3))
    assert asyncio.get_running_loop().time() - began >= 3


async def test_a_restarted_triggerer_shows_every_line_once(
    host: Host, shown: Lines, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigger, "QUIET_S", 0.2)
    tell(workspace, "generate", "alpha", do="lines_slowly", count=40, seconds=0.1)
    found = started(order_for())
    async with running(found):
        await until(lambda: "line 10" in shown)
        before = len(shown.lines)
        await until(lambda: len(shown.lines) > before)
    last_answer = len(shown.lines) - before
    event = await event_of(again(found))
    assert event["job"]["state"] == "done"
    numbers = [int(line.split()[1]) for line in shown.lines if line.startswith("line ")]
    assert sorted(set(numbers)) == list(range(min(numbers), 40))
    # The last answer before the cut was not acknowledged, and comes once more; nothing else does.
    assert len(numbers) - len(set(numbers)) <= last_answer


async def test_an_outage_is_survived_and_told_of_calmly(host: Host, sshd: Sshd, shown: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trigger, "QUIET_S", 0.2)
    order = order_for(budget_tokens=600, expected_tokens=100)
    async with running(started(order)) as task:
        await until(lambda: "row" in shown)
        pid = look(host, order.key("generate", "alpha")).pid
        sshd.stop()
        await asyncio.sleep(8)
        assert not task.done()
        warnings = [line for line in shown.lines if "keeps trying" in line or "still trying" in line]
        assert len(warnings) == 1
        sshd.start()
        event = await task
    assert "answers again after" in shown
    assert conclude(event)["completion_tokens"] == 600
    assert (event["job"]["pid"], event["job"]["attempt"]) == (pid, 1)


async def test_a_long_outage_is_told_of_once_a_minute(host: Host, shown: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(outage.time, "monotonic", lambda: now)
    told = outage.Outage("host", RemoteJobTrigger.log)
    from draftmill_airflow.errors import HostUnreachable

    for _ in range(3600):
        told.goes_on(HostUnreachable("host: cannot be reached"))
        now += 1
    told.over()
    assert 59 <= len(shown.lines) <= 62
    assert "host answers again after 3600 s" in shown


async def test_a_job_that_was_killed_is_lost_within_seconds(host: Host, shown: Lines) -> None:
    order = order_for(budget_tokens=100_000)
    async with running(started(order)) as task:
        await until(lambda: look(host, order.key("generate", "alpha")).state == "running")
        os.kill(look(host, order.key("generate", "alpha")).pid, signal.SIGKILL)
        event = await asyncio.wait_for(task, 20)
    with pytest.raises(JobLost, match="starts it again"):
        conclude(event)


async def test_a_wiped_workspace_ends_the_wait(host: Host, shown: Lines, workspace: Path) -> None:
    order = order_for(budget_tokens=100_000)
    found = started(order)
    pid = look(host, order.key("generate", "alpha")).pid
    shutil.rmtree(workspace / "campaigns")
    with pytest.raises(JobLost, match="absent"):
        conclude(await event_of(found))
    os.kill(pid, signal.SIGKILL)


async def test_code_that_is_gone_ends_the_wait_so_that_a_retry_delivers_it(host: Host, shown: Lines) -> None:
    found = started(order_for(budget_tokens=100_000))
    Path(found.zipapp).unlink()  # noqa: ASYNC240 - a test
    with pytest.raises(CodeMissing):
        conclude(await event_of(found))


async def test_another_host_key_ends_the_wait_for_a_person(host: Host, connection: Any, shown: Lines, tmp_path: Path) -> None:
    found = started(order_for(budget_tokens=100_000))
    make_key(tmp_path / "other")
    connection(host_key=" ".join((tmp_path / "other.pub").read_text().split()[:2]))
    with pytest.raises(HostRefused):
        conclude(await event_of(found))


async def test_a_user_action_stops_the_job_and_a_shutdown_does_not(host: Host, shown: Lines) -> None:
    order = order_for(budget_tokens=100_000)
    found = started(order)
    async with running(found):
        await asyncio.sleep(1)
    assert look(host, order.key("generate", "alpha")).state == "running"
    await found.on_kill()
    assert look(host, order.key("generate", "alpha")).state == "stopped"


async def test_a_late_stop_leaves_the_job_of_the_next_try_alone(host: Host, shown: Lines) -> None:
    order = order_for(budget_tokens=100_000)
    found = started(order)
    defer(operator(order, inline_s=0), try_number=2)
    await found.on_kill()
    assert look(host, order.key("generate", "alpha")).state == "running"


async def test_cancelling_keeps_the_message_that_tells_a_user_action(host: Host, shown: Lines) -> None:
    """Airflow calls on_kill only where the cancellation comes out of run() with its message."""
    task = asyncio.create_task(event_of(started(order_for(budget_tokens=100_000))))
    await asyncio.sleep(2)
    task.cancel("__airflow_user_action__")
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    assert cancelled.value.args == ("__airflow_user_action__",)


async def test_a_noisy_log_stays_readable(host: Host, shown: Lines, workspace: Path) -> None:
    tell(workspace, "generate", "alpha", do="noise")
    event = await event_of(started(order_for()))
    assert event["job"]["state"] == "done"
    assert "before the noise" in shown
    assert "invalid \ufffd\ufffd bytes" in shown
    assert "1999 \u65e5\u672c\u8a9e" in shown
    assert "after the noise \u2713" in shown
    assert max(map(len, shown.lines)) < 2100
    assert len(shown.lines) < 60


async def test_a_million_lines_are_bounded_in_the_log_and_in_memory(host: Host, shown: Lines, workspace: Path) -> None:
    tell(workspace, "generate", "alpha", do="lines", count=1_000_000)
    tracemalloc.start()
    try:
        event = await event_of(started(order_for()), timeout_s=200)
        peak = tracemalloc.get_traced_memory()[1] - sum(map(len, shown.lines))
    finally:
        tracemalloc.stop()
    assert event["job"]["state"] == "done"
    assert "line 999999" in shown
    assert "bytes of the job's log are left out here" in shown
    assert sum(map(len, shown.lines)) < 8 << 20
    assert peak < 64 << 20


async def test_a_silent_job_shows_that_it_lives(host: Host, shown: Lines, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from draftmill_airflow import watch

    monkeypatch.setattr(watch, "PROGRESS_S", 1)
    monkeypatch.setattr(trigger, "WAIT_S", 1.0)
    tell(workspace, "generate", "alpha", do="sleep", seconds=6)
    event = await event_of(started(order_for()))
    assert event["job"]["state"] == "done"
    assert "test/generate/alpha: running" in shown
