"""The operator against a real sshd and real jobs, without a scheduler."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException, TaskDeferralTimeout, TaskDeferred

from draftmill_airflow.errors import JobFailed, JobLost, JobNeedsAPerson
from draftmill_airflow.host import Host
from draftmill_airflow.operator import RemoteJobOperator
from draftmill_airflow.order import Order
from draftmill_airflow.teardown import StopServerOperator
from tests.integration.airflow.conftest import job_keys, look, order_for
from tests.integration.rehearsal import tell
from tests.integration.sshd import Sshd


def context(try_number: int = 1) -> dict[str, Any]:
    return {"ti": SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=0, try_number=try_number)}


def operator(order: Order, verb: str = "generate", dataset: str | None = "alpha", **changes: Any) -> RemoteJobOperator:
    return RemoteJobOperator(task_id="t", verb=verb, order=order.model_dump(mode="json"), dataset=dataset, **changes)


def run(task: RemoteJobOperator, try_number: int = 1) -> Any:
    return task.execute(context(try_number))


def defer(task: RemoteJobOperator, try_number: int = 1) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as deferred:
        run(task, try_number)
    return deferred.value


def test_a_short_job_costs_no_deferral(host: Host) -> None:
    result = run(operator(order_for(budget_tokens=50)))
    assert result["completion_tokens"] == 50


def test_a_finished_data_set_is_done_again_at_once(host: Host) -> None:
    order = order_for(budget_tokens=50)
    run(operator(order))
    assert run(operator(order), try_number=2)["new_tokens"] == 0


def test_a_long_job_is_handed_to_the_trigger_and_found_again_by_a_retry(host: Host) -> None:
    order = order_for(budget_tokens=100_000)
    key = order.key("generate", "alpha")
    deferred = defer(operator(order, inline_s=0.5))
    pid = look(host, key).pid
    defer(operator(order, inline_s=0.5), try_number=2)
    again = look(host, key)
    assert (again.state, again.pid, again.attempt) == ("running", pid, 1)
    path, kwargs = deferred.trigger.serialize()
    assert path == "draftmill_airflow.trigger.RemoteJobTrigger"
    assert host.secrets == {}
    assert kwargs["key"] == {"campaign": "test", "task": "generate", "dataset": "alpha"}


def test_a_raised_budget_replaces_the_running_job_and_continues(host: Host, workspace: Path) -> None:
    defer(operator(order_for(budget_tokens=100_000), inline_s=1))
    result = run(operator(order_for(budget_tokens=300), inline_s=60), try_number=2)
    assert result["completion_tokens"] >= 300
    assert not list(workspace.glob("campaigns/*/*.two-writers"))


def test_work_on_one_data_set_is_not_disturbed_by_a_change_to_another(host: Host) -> None:
    order = order_for("alpha", "beta", budget_tokens=100_000)
    defer(operator(order, inline_s=0.5))
    pid = look(host, order.key("generate", "alpha")).pid
    changed = order.model_copy(update={"plan": order.plan.only("alpha")})
    defer(operator(changed, inline_s=0.5), try_number=2)
    assert look(host, order.key("generate", "alpha")).pid == pid


@pytest.mark.parametrize(("how", "expected"), [("temporary", JobFailed), ("permanent", JobNeedsAPerson)])
def test_the_exit_code_decides_about_a_retry(host: Host, workspace: Path, how: str, expected: type[Exception]) -> None:
    tell(workspace, "generate", "alpha", do="fail", how=how)
    with pytest.raises(expected, match="test/generate/alpha: alpha: told to fail"):
        run(operator(order_for()))


def test_a_kill_while_it_waits_stops_the_job_in_order(host: Host, workspace: Path, sshd: Sshd) -> None:
    """As Airflow does it: a signal in the middle of a call, and the body goes on. One connection has to do, with two sessions."""
    sshd.stop()
    sshd.options["MaxSessions"] = "2"
    sshd.start()
    order = order_for(budget_tokens=100_000)
    task = operator(order, inline_s=30)
    before = signal.signal(signal.SIGALRM, lambda *_: task.on_kill())
    signal.setitimer(signal.ITIMER_REAL, 8)
    try:
        with pytest.raises(JobFailed, match="stopped on the host"):
            run(task)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert "stopped alpha" in (workspace / "campaigns/test/events.log").read_text()


def test_a_kill_after_the_handover_is_the_triggers_business(host: Host) -> None:
    order = order_for(budget_tokens=100_000)
    task = operator(order, inline_s=0.5)
    defer(task)
    task.on_kill()
    assert look(host, order.key("generate", "alpha")).state == "running"


def test_a_kill_before_anything_was_started_does_nothing(host: Host, workspace: Path) -> None:
    operator(order_for()).on_kill()
    assert not workspace.exists()


def test_the_time_limit_stops_the_job_in_order(host: Host) -> None:
    order = order_for(budget_tokens=100_000)
    task = operator(order, inline_s=0.5)
    defer(task)
    with pytest.raises(TaskDeferralTimeout):
        operator(order).resume_execution("__fail__", {"error": "Trigger timeout"}, context())  # type: ignore[arg-type]
    assert look(host, order.key("generate", "alpha")).state == "stopped"


def test_what_the_trigger_reports_becomes_the_result_or_the_failure(host: Host) -> None:
    job = {"key": {"campaign": "test", "task": "generate", "dataset": "alpha"}, "state": "done", "result": {"rows": 1}}
    complete: Callable[..., Any] = operator(order_for()).execute_complete
    assert complete(context(), event={"job": job}) == {"rows": 1}
    with pytest.raises(JobLost, match="starts it again from what is on disk"):
        complete(context(), event={"job": job | {"state": "lost"}})
    with pytest.raises(JobLost):
        complete(context(), event={"job": job | {"state": "absent"}})
    with pytest.raises(JobFailed, match="stopped on the host"):
        complete(context(), event={"job": job | {"state": "stopped", "exit_code": 79}})


def test_a_dry_run_starts_nothing_but_harmless_steps(host: Host, workspace: Path) -> None:
    order = order_for(dry_run=True)
    assert run(operator(order, "preflight", None)) == {"ok": True}
    with pytest.raises(AirflowSkipException):
        run(operator(order, "launch", None))
    assert [key.task for key in job_keys(host.workspace)] == ["preflight"]


def test_a_data_set_that_is_not_in_the_order_is_refused_by_name(host: Host, workspace: Path) -> None:
    with pytest.raises(JobNeedsAPerson, match="omega"):
        run(operator(order_for("alpha"), dataset="omega"))
    assert not workspace.exists()


def stopping(order: Order, results: list[dict[str, Any]]) -> Any:
    """Carry out `stop_server` after tasks that left these results."""
    task = StopServerOperator(task_id="t", user_task_id="dataset.generate", order=order.model_dump(mode="json"))
    ti = SimpleNamespace(**vars(context()["ti"]), xcom_pull=lambda task_ids: results)
    return task.execute({"ti": ti})  # type: ignore[arg-type]


def test_the_teardown_first_stops_a_job_that_nobody_waits_for(host: Host, workspace: Path) -> None:
    order = order_for("alpha", "beta", budget_tokens=100_000)
    defer(operator(order, inline_s=0.5))
    assert stopping(order, [{"dataset": "beta"}]) == {"stopped": True}
    assert look(host, order.key("generate", "alpha")).state == "stopped"
    assert (workspace / "campaigns/test/events.log").read_text().splitlines()[-2:] == ["stopped alpha", "stop-server"]


def test_the_teardown_leaves_alone_what_has_its_result(host: Host) -> None:
    order = order_for(budget_tokens=100_000)
    defer(operator(order, inline_s=0.5))
    stopping(order, [{"dataset": "alpha"}])
    assert look(host, order.key("generate", "alpha")).state == "running"
