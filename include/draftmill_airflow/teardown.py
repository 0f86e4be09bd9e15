"""Stopping the server, and before it whatever job of the campaign nobody waits for any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftmill_airflow.delivery import ensure_code
from draftmill_airflow.host import Host
from draftmill_airflow.operator import CALL_S, RemoteJobOperator
from draftmill_airflow.order import Order
from draftmill_airflow.reporting import pull_results, unfinished
from draftmill_airflow.ssh import connect

if TYPE_CHECKING:
    from airflow.sdk import Context

USER = "generate"


class StopServerOperator(RemoteJobOperator):
    """The step `stop-server`, once every job that uses the server has ended.

    Airflow stops a deferred task's job through its trigger. A task that is marked or cleared in the moment between its deferral and
    the start of its trigger has none, and its job would go on unwatched. When this task runs, all tasks that use the server are over;
    so a job that still runs for one that left no result belongs to nobody.
    """

    def __init__(self, *, user_task_id: str, **kwargs: Any) -> None:
        super().__init__(verb="stop-server", **kwargs)
        self.user_task_id = user_task_id

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Stop what is left over, then the server."""
        order = Order.model_validate(self.order, strict=False)
        left = unfinished(order, pull_results(context["ti"], self.user_task_id))
        if left and not order.dry_run:
            with connect(Host.load(order.conn_id)) as session:
                zipapp = ensure_code(session).zipapp
                for dataset in left:
                    self.stop_job(session, zipapp, order.key(USER, dataset), asker=None, timeout_s=self.grace_s + CALL_S)
        return super().execute(context)
