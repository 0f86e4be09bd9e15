"""Runs one step of draftmill as a detached job on a host: started once, found again, watched, stopped with its task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowSkipException, TaskDeferralTimeout

from draftmill.jobs.models import JobKey, JobStatus, StartRequest, StopRequest
from draftmill_airflow.delivery import ensure_code
from draftmill_airflow.host import Host
from draftmill_airflow.links import CampaignFolderLink, JournalLink
from draftmill_airflow.metrics import count_result
from draftmill_airflow.order import Order
from draftmill_airflow.outcome import conclude, result_of
from draftmill_airflow.ssh import HostSession, connect
from draftmill_airflow.task_docs import doc_of
from draftmill_airflow.trigger import RemoteJobTrigger
from draftmill_airflow.watch import JobWatch

if TYPE_CHECKING:
    from airflow.sdk import Context

INLINE_S = 20.0
"""How long a task waits for its job itself. A job that has nothing left to do ends within it, and costs no deferral."""

START_S = 150.0
"""Time limit of `job start`: it may first have to end, in order, a job of an older plan."""

CALL_S = 60.0
KILL_S = 4.0
"""Airflow kills a task 5 s after it was told to end."""

HARMLESS = frozenset({"survey", "preflight"})
"""Steps that a dry run carries out too."""


class RemoteJobOperator(BaseOperator):
    """Carry out `verb` of an order on its host and return the step's result.

    The job is found by campaign, verb and data set. `execute` starts it or attaches to it, so a retry, a clear or a task that Airflow
    lost never starts a second one. A job that is not over within `inline_s` is waited for by RemoteJobTrigger.

    verb: a step of draftmill.jobs.step.
    order: what `plan` returned (templated).
    dataset: the data set of a step that works on one (templated).
    time_limit: the job is stopped in order once it has been waited for this long.
    grace_s: how long a job that is stopped may take to finish what it is at.
    """

    template_fields: Sequence[str] = ("order", "dataset")
    template_fields_renderers = {"order": "json"}  # noqa: RUF012 - the name and type that Airflow gives it
    operator_extra_links = (CampaignFolderLink(), JournalLink())
    ui_color = "#dfe9f3"

    def __init__(
        self,
        *,
        verb: str,
        order: Any,
        dataset: str | None = None,
        inline_s: float = INLINE_S,
        time_limit: timedelta | None = None,
        grace_s: float = 60,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("doc_md", doc_of(verb))
        super().__init__(**kwargs)
        self.verb = verb
        self.order = order
        self.dataset = dataset
        self.inline_s = inline_s
        self.time_limit = time_limit
        self.grace_s = grace_s
        self._at_work: tuple[HostSession, str, StartRequest] | None = None

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Start the job or attach to it; wait for it here for a moment, then in the triggerer."""
        order = Order.model_validate(self.order, strict=False)
        if order.dry_run and self.verb not in HARMLESS:
            raise AirflowSkipException("a dry run starts nothing")
        plan, key, asker = order.narrowed(self.verb, self.dataset), order.key(self.verb, self.dataset), asker_of(context)
        host = Host.load(order.conn_id)
        request = StartRequest(workspace=host.workspace, key=key, plan=plan, secrets=host.secrets, asker=asker)
        with connect(host) as session:
            zipapp = ensure_code(session).zipapp
            self._at_work = session, zipapp, request
            watch = self._start(session, zipapp, request)
            over = self._wait_here(session, watch, zipapp)
            self._at_work = None
        if over:
            return self._done(result_of(watch.last))
        self.log.info("%s goes on; the triggerer watches it from here", key)
        seen, attempt = watch.seen
        trigger = RemoteJobTrigger(order.conn_id, zipapp, key.model_dump(), asker, seen, attempt, self.grace_s)
        self.defer(trigger=trigger, method_name="execute_complete", timeout=self.time_limit)
        return None

    def _start(self, session: HostSession, zipapp: str, request: StartRequest) -> JobWatch:
        watch = JobWatch(request.workspace, request.key, time.monotonic())
        status = session.call(zipapp, "start", request, START_S)
        how = "attached to" if status.attached else "started"
        self.log.info("%s %s on %s (attempt %d, pid %s)", how, request.key, session.host.address, status.attempt, status.pid)
        return watch

    def _wait_here(self, session: HostSession, watch: JobWatch, zipapp: str) -> bool:
        """Show the log until the job is over; False where it is not over after `inline_s`."""
        until = time.monotonic() + self.inline_s
        while (left := until - time.monotonic()) > 0:
            status = session.call(zipapp, "status", watch.request(time.monotonic(), left, 2), left + CALL_S)
            for line in watch.see(status, time.monotonic()):
                self.log.info("%s", line)
            if watch.finished:
                return True
        return False

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on after the trigger: the job is over, or cannot be watched."""
        return self._done(conclude(event))

    def _done(self, result: dict[str, Any]) -> dict[str, Any]:
        count_result(self.verb, result)
        self.log.info("%s is done: %s", self.verb, {name: value for name, value in result.items() if value not in (None, {}, [])})
        return result

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """As Airflow does it; but where the time limit has passed, stop the job first."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            self.log.warning("the time limit of %s has passed; stopping the job", self.time_limit)
            order = Order.model_validate(self.order, strict=False)
            with connect(Host.load(order.conn_id)) as session:
                key = order.key(self.verb, self.dataset)
                self.stop_job(session, ensure_code(session).zipapp, key, asker_of(context), self.grace_s + CALL_S)
            raise

    def on_kill(self) -> None:
        """Stop the job: a user has marked or cleared the running task. The stop goes on on the host after this process is gone.

        Airflow calls this from a signal handler, so it uses the connection that is there: to ask for anything else, the connection's
        settings for example, could wait for ever on what was interrupted.
        """
        if self._at_work is None:
            return
        session, zipapp, request = self._at_work
        try:
            self.stop_job(session, zipapp, request.key, request.asker, KILL_S)
        except AirflowException as error:
            self.log.warning("the job may still run: %s", error)

    def stop_job(self, session: HostSession, zipapp: str, key: JobKey, asker: str | None, timeout_s: float) -> JobStatus:
        """Stop a job in order; only if `asker` is the last who started it or attached to it, unless that is None."""
        request = StopRequest(workspace=session.host.workspace, key=key, grace_s=self.grace_s, asker=asker)
        status = session.call(zipapp, "stop", request, timeout_s)
        self.log.info("%s: stop was asked for; the job is %s", key, status.state)
        return status


def asker_of(context: Context) -> str:
    """This try of this task, as the host remembers who started or attached to a job last."""
    ti = context["ti"]
    return f"{ti.dag_id}/{ti.run_id}/{ti.task_id}/{ti.map_index}/{ti.try_number}"
