"""Kill anything in mid-generation: the run ends green after at most its retries, one job at any time, each row once."""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from draftmill_airflow.order import Order
from tests.integration.airflow.conftest import order_for, secret_in_files
from tests.integration.airflow.deployment import FINISHED, Run
from tests.integration.airflow.live import SECRET, Campaign, Live, job_processes
from tests.integration.rehearsal import tell

pytestmark = [pytest.mark.airflow_live, pytest.mark.endurance, pytest.mark.timeout(1800)]

WAIT_S = 900
ROWS = 300
"""Half a minute of rows at 0.1 s each."""


def campaign_of(live: Live, name: str, rows: int = ROWS) -> tuple[Campaign, Order]:
    """An order for one data set, in a campaign of its own; a row takes 0.1 s."""
    order = order_for("alpha", budget_tokens=rows * 10, expected_tokens=100)
    return Campaign(live, name), order.model_copy(update={"plan": order.plan.model_copy(update={"campaign": name})})


def deferred(live: Live, order: Order) -> Run:
    """A run whose job is at work and whose task waits in the triggerer."""
    run = live.one_job(order)
    run.wait_for_state("job[alpha]", {"deferred"}, 300)
    return run


def check(run: Run, campaign: Campaign, processes: int = 1, rows: int = ROWS) -> None:
    """Green, each row once and in order, no more than so many processes one after the other."""
    assert run.wait(WAIT_S) == "success", run.log("job[alpha]")
    campaign.check_rows("alpha", rows)
    assert len(campaign.processes("alpha")) <= processes
    assert run.result("job[alpha]")["completion_tokens"] == rows * 10


@contextlib.contextmanager
def outage(campaign: Campaign, seconds: float, rows: int) -> Iterator[None]:
    """What is in the block lasts `seconds`. The job goes on all the while, alone, and has work left at the end."""
    before = len(campaign.rows("alpha"))
    yield
    time.sleep(seconds)
    assert before + 0.5 * seconds / 0.1 < len(campaign.rows("alpha")) < rows
    assert len(campaign.processes("alpha")) == 1


def shown_rows(run: Run) -> list[str]:
    """Lines of the job's own log that the task log holds, over all tries."""
    tries = range(1, run.tasks()["job[alpha]"]["try_number"] + 1)
    text = "\n".join(run.log("job[alpha]", number) for number in tries)
    return [line for line in text.splitlines() if "rows" in line and "alpha:" in line]


def test_the_triggerer(live: Live) -> None:
    campaign, order = campaign_of(live, "killtriggerer")
    run = deferred(live, order)
    live.airflow.kill("triggerer")
    live.airflow.start("triggerer")
    check(run, campaign)
    assert run.tasks()["job[alpha]"]["try_number"] == 1
    lines = shown_rows(run)
    assert len(lines) == len(set(lines))


def test_the_scheduler(live: Live) -> None:
    campaign, order = campaign_of(live, "killscheduler")
    run = deferred(live, order)
    live.airflow.kill("scheduler")
    live.airflow.start("scheduler")
    check(run, campaign)


def test_the_scheduler_with_its_workers_while_a_task_submits(live: Live) -> None:
    campaign, order = campaign_of(live, "killsubmit")
    run = live.one_job(order)
    run.wait_for_state("job[alpha]", {"running"}, 300)
    live.airflow.kill("scheduler")
    live.airflow.start("scheduler")
    check(run, campaign)


def test_the_task_process_while_it_submits(live: Live) -> None:
    campaign, order = campaign_of(live, "killworker")
    run = live.one_job(order)
    entry = run.wait_for_state("job[alpha]", {"running"}, 300)
    live.airflow.wait_for(lambda: task_processes(entry["id"]), "the task's process", 60)
    for process in task_processes(entry["id"]):
        process.kill()
    check(run, campaign)


def task_processes(instance_id: str) -> list[psutil.Process]:
    """The process of a task instance, by the title that Airflow gives it; not the worker that waits for it."""
    found = psutil.process_iter(["cmdline"])
    return [process for process in found if " ".join(process.info["cmdline"] or []).strip() == f"airflow worker -- {instance_id}"]


def test_the_api_server_for_five_minutes(live: Live) -> None:
    rows = 4_500
    campaign, order = campaign_of(live, "killapi", rows)
    run = deferred(live, order)
    with outage(campaign, 300, rows):
        live.airflow.kill("api-server")
    live.airflow.start("api-server")
    live.airflow.wait_until_healthy()
    check(run, campaign, rows=rows)


def test_the_ssh_daemon_and_its_connections(live: Live) -> None:
    rows = 600
    campaign, order = campaign_of(live, "killsshd", rows)
    run = deferred(live, order)
    with outage(campaign, 15, rows):
        live.sshd.stop()
    live.sshd.start()
    check(run, campaign, rows=rows)
    assert run.tasks()["job[alpha]"]["try_number"] == 1


def test_the_network_for_seven_minutes(live: Live) -> None:
    rows = 5_500
    campaign, order = campaign_of(live, "killnetwork", rows)
    run = deferred(live, order)
    with live.sshd.unreachable(), outage(campaign, 420, rows):
        pass
    check(run, campaign, rows=rows)
    assert run.tasks()["job[alpha]"]["try_number"] == 1
    told = [line for line in run.log("job[alpha]").splitlines() if "still trying" in line]
    assert 4 <= len(told) <= 8  # once a minute, not once a second


def test_all_processes_of_the_host(live: Live) -> None:
    campaign, order = campaign_of(live, "killhost")
    run = deferred(live, order)
    live.sshd.stop()
    for process in job_processes(live.workspace):
        process.send_signal(signal.SIGKILL)
    live.sshd.start()
    check(run, campaign, processes=2)
    assert run.tasks()["job[alpha]"]["try_number"] == 2
    assert "starts it again from what is on disk" in run.log("job[alpha]", 1)


def test_the_workspace_of_the_host(live: Live) -> None:
    """As when /tmp is wiped: nothing is left to continue from, and the job starts from the beginning, alone."""
    campaign, order = campaign_of(live, "wiped")
    run = deferred(live, order)
    shutil.rmtree(campaign.folder)
    assert run.wait(WAIT_S) == "success", run.log("job[alpha]")
    campaign.check_rows("alpha", ROWS)
    live.airflow.wait_for(lambda: not [job for job in job_processes(live.workspace) if "wiped" in " ".join(job.cmdline())], "one job", 60)


def test_eight_data_sets_through_a_narrow_door(live: Live) -> None:
    names = [f"d{number}" for number in range(8)]
    order = order_for(*names, budget_tokens=2_000, expected_tokens=100)
    order = order.model_copy(update={"plan": order.plan.model_copy(update={"campaign": "narrow"})})
    live.sshd.stop()
    live.sshd.options |= {"MaxStartups": "2:50:3", "MaxSessions": "2"}
    live.sshd.start()
    try:
        run = live.one_job(order)
        assert run.wait(WAIT_S) == "success"
    finally:
        live.sshd.stop()
        live.sshd.options = {}
        live.sshd.start()
    for name in names:
        Campaign(live, "narrow").check_rows(name, 200)


def test_ten_minutes_of_silence(live: Live) -> None:
    campaign, order = campaign_of(live, "silent")
    told = tell(live.workspace, "generate", "alpha", do="sleep", seconds=600)
    run = deferred(live, order)
    try:
        assert run.wait(WAIT_S) == "success"
    finally:
        told.unlink()
    assert run.tasks()["job[alpha]"]["try_number"] == 1
    alive = [line for line in run.log("job[alpha]").splitlines() if "silent/generate/alpha: running" in line]
    assert 8 <= len(alive) <= 12  # one line a minute says that it lives
    assert campaign.rows("alpha") == []


def test_a_secret_is_seen_nowhere(live: Live) -> None:
    order = order_for("alpha")
    order = order.model_copy(update={"plan": order.plan.model_copy(update={"campaign": "secret"})})
    told = tell(live.workspace, "generate", "alpha", do="environment", name="HF_TOKEN", seconds=25)
    run = live.one_job(order)
    seen: set[str] = set()
    try:
        run.wait_for_state("job[alpha]", {"deferred"}, 300)  # so that the worker and the triggerer both show lines of its log
        live.airflow.wait_for(lambda: run_is_over(run, seen), "end of the run", WAIT_S)
    finally:
        told.unlink()
    assert run.result("job[alpha]")["length"] == len(SECRET)
    log = run.log("job[alpha]")
    assert log.count("a careless library prints HF_TOKEN=") == 2
    assert SECRET not in log
    assert [words for words in seen if "draftmill" in words]
    assert not [words for words in seen if SECRET in words]
    # Everything Airflow keeps: logs of tasks and of its own processes, and the database with all XComs and rendered fields.
    everything = [path for path in live.airflow.home.rglob("*") if path.is_file()]
    assert {"airflow.db", "scheduler.log", "triggerer.log"} <= {path.name for path in everything}
    assert not [path for path in everything if SECRET.encode() in path.read_bytes()]
    assert not secret_in_files(live.workspace, SECRET)


def run_is_over(run: Run, seen: set[str]) -> bool:
    """Whether the run has ended; adds the command lines of all processes to `seen`."""
    for process in psutil.process_iter(["cmdline"]):
        seen.add(" ".join(process.info["cmdline"] or []))
    return run.get()["state"] in FINISHED


def test_command_lines_hold_no_secret_and_no_name(live: Live) -> None:
    campaign, order = campaign_of(live, "commandlines")
    run = live.one_job(order)
    seen: set[str] = set()
    live.airflow.wait_for(lambda: run_is_over(run, seen), "end of the run", WAIT_S)
    campaign.check_rows("alpha", ROWS)
    assert any("job start" in words or "job status" in words for words in seen)
    assert not [words for words in seen if SECRET in words]
