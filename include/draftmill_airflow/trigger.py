"""Waits for a remote job over one SSH connection, and shows its log as it grows."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from draftmill.jobs.models import JobKey, JobStatus, StopRequest
from draftmill_airflow.errors import CodeMissing, HostAnswerError, HostRefused, HostSettingsError, HostUnreachable, PythonMissing
from draftmill_airflow.host import Host
from draftmill_airflow.metrics import gauge_progress
from draftmill_airflow.notify import tell_of_stall
from draftmill_airflow.outage import Outage
from draftmill_airflow.outcome import event_of_error, event_of_job
from draftmill_airflow.ssh_async import AsyncHostSession, connect
from draftmill_airflow.watch import JobWatch
from draftmill_airflow.wire import delays

WAIT_S = 30.0
"""The host answers at the latest after this time."""

QUIET_S = 8.0
"""New log lines alone are fetched no more often than this: every answer is a short process on the host."""

CALL_S = 60.0
"""Time limit of a call, beyond what the host was allowed to wait."""

STOP_S = 25.0
"""Airflow gives `on_kill` 30 s."""


class RemoteJobTrigger(BaseTrigger):
    """Fires once the job is over and the last line of its log was shown.

    It holds nothing that a restart would lose: the host remembers which lines were shown. An unreachable host is waited for without
    limit, since the job goes on there; it ends the wait only with the task's own time limit.

    The event is what `draftmill_airflow.outcome.conclude` reads.
    """

    def __init__(
        self,
        conn_id: str,
        zipapp: str,
        key: dict[str, Any],
        asker: str,
        seen: int = 0,
        attempt: int | None = None,
        grace_s: float = 60,
        least_s: float = 5,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.conn_id = conn_id
        self.zipapp = zipapp
        self.key = key
        self.asker = asker
        self.seen = seen
        self.attempt = attempt
        self.grace_s = grace_s
        self.least_s = least_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments."""
        names = ("conn_id", "zipapp", "key", "asker", "seen", "attempt", "grace_s", "least_s")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch the job; one event."""
        began = time.monotonic()
        try:
            event = event_of_job(await self._watch())
        except (CodeMissing, HostAnswerError, HostRefused, HostSettingsError, PythonMissing) as error:
            event = event_of_error(error)
        # The scheduler may not yet have seen that the worker which deferred is gone. An event before that makes it fail the task.
        await asyncio.sleep(max(0.0, began + self.least_s - time.monotonic()))
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def _watch(self) -> JobStatus:
        host = await Host.aload(self.conn_id)
        watch = JobWatch(host.workspace, JobKey.model_validate(self.key), time.monotonic(), self.seen, self.attempt)
        outage = Outage(host.address, self.log)
        while True:
            try:
                async with connect(host) as session:
                    return await self._follow(session, watch, outage)
            except (HostUnreachable, HostAnswerError, PythonMissing) as error:  # noqa: PERF203 - an attempt takes much longer
                await asyncio.sleep(outage.goes_on(error))

    async def _follow(self, session: AsyncHostSession, watch: JobWatch, outage: Outage) -> JobStatus:
        while True:
            request = watch.request(time.monotonic(), WAIT_S, QUIET_S)
            status = await session.call(self.zipapp, "status", request, request.wait_s + CALL_S)
            outage.over()
            for line in watch.see(status, time.monotonic()):
                self.log.info("%s", line)
            gauge_progress(watch.key.dataset, status.progress)
            if stall := watch.take_stall():
                await tell_of_stall(self.task_instance, stall, self.log)
            if watch.finished:
                return status

    async def on_kill(self) -> None:
        """Stop the job in order: a user has cleared or marked the deferred task."""
        host = await Host.aload(self.conn_id)
        request = StopRequest(workspace=host.workspace, key=JobKey.model_validate(self.key), grace_s=self.grace_s, asker=self.asker)
        deadline = time.monotonic() + STOP_S
        for delay in delays(first_s=0.5, most_s=5):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            with contextlib.suppress(HostUnreachable):
                async with connect(host) as session:
                    status = await session.call(self.zipapp, "stop", request, left)
                    self.log.info("%s: stop was asked for; the job is %s", status.key, status.state)
                    return
            await asyncio.sleep(min(delay, left))
        # A stop that was sent goes on on the host, whether or not its answer is heard.
        self.log.warning("%s: no answer to `job stop` within %.0f s", request.key, STOP_S)
