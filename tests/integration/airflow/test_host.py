"""Connections to a host: what is refused, what is tried again, and what each failure is called."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from draftmill.jobs.models import JobStatus, StatusRequest
from draftmill_airflow import ssh_async
from draftmill_airflow.delivery import ensure_code
from draftmill_airflow.errors import CodeMissing, HostRefused, HostSettingsError, HostUnreachable, JobNeedsAPerson, PythonMissing
from draftmill_airflow.host import Host
from draftmill_airflow.ssh import connect
from tests.integration.airflow.conftest import deliver_locally, order_for
from tests.integration.sshd import Sshd, free_port, make_key


def absent(host: Host) -> StatusRequest:
    return StatusRequest(workspace=host.workspace, key=order_for().key("generate", "alpha"))


def ask(host: Host, patience_s: float = 60) -> JobStatus:
    with connect(host, patience_s) as session:
        return session.call(ensure_code(session).zipapp, "status", absent(host), 60)


async def ask_async(host: Host, zipapp: str) -> JobStatus:
    async with ssh_async.connect(host) as session:
        return await session.call(zipapp, "status", absent(host), 60)


async def test_both_hooks_reach_the_host(host: Host) -> None:
    with connect(host) as session:
        zipapp = ensure_code(session).zipapp
        assert session.call(zipapp, "status", absent(host), 60).state == "absent"
    assert (await ask_async(host, zipapp)).state == "absent"


async def test_another_host_key_is_refused_by_both_hooks(host: Host, connection: Callable[..., Host], tmp_path: Path) -> None:
    make_key(tmp_path / "other")
    wrong = connection(host_key=" ".join((tmp_path / "other.pub").read_text().split()[:2]))
    with pytest.raises(HostRefused, match="host key is not the one of connection test_host"):
        ask(wrong)
    with pytest.raises(HostRefused, match="host key is not the one of connection test_host"):
        await ask_async(wrong, "/nowhere.pyz")


async def test_a_host_key_of_another_type_is_refused_by_both_hooks(host: Host, connection: Callable[..., Host], tmp_path: Path) -> None:
    make_key(tmp_path / "other", "rsa")
    wrong = connection(host_key=" ".join((tmp_path / "other.pub").read_text().split()[:2]))
    with pytest.raises(HostRefused):
        ask(wrong)
    with pytest.raises((HostRefused, HostUnreachable)):
        await ask_async(wrong, "/nowhere.pyz")


async def test_a_login_that_is_refused_is_not_tried_again(host: Host, connection: Callable[..., Host], tmp_path: Path) -> None:
    stranger = connection(key_file=str(make_key(tmp_path / "stranger")))
    began = time.monotonic()
    with pytest.raises(HostRefused, match="login of connection test_host was refused"):
        ask(stranger)
    assert time.monotonic() - began < 15
    with pytest.raises(HostRefused, match="login of connection test_host was refused"):
        await ask_async(stranger, "/nowhere.pyz")


def test_a_key_file_that_is_not_there_is_a_fault_of_the_connection(host: Host, connection: Callable[..., Host]) -> None:
    with pytest.raises(HostSettingsError, match="key file cannot be read"):
        ask(connection(key_file="/nowhere/key"))


async def test_nobody_there(host: Host, connection: Callable[..., Host]) -> None:
    nobody = connection(port=free_port())
    with pytest.raises(HostUnreachable, match="cannot be reached for 3 s"):
        ask(nobody, patience_s=3)
    with pytest.raises(HostUnreachable):
        await ask_async(nobody, "/nowhere.pyz")


async def test_python_missing_is_told_from_code_missing(host: Host, connection: Callable[..., Host], workspace: Path) -> None:
    without = connection(draftmill={"python": "/nowhere/bin/python", "workspace": str(workspace)})
    with pytest.raises(PythonMissing, match=r"draftmill\.python"):
        ask(without)
    with connect(host) as session, pytest.raises(CodeMissing, match="the next try delivers it again"):
        session.call(str(workspace / "code" / "gone.pyz"), "status", absent(host), 60)
    with pytest.raises(CodeMissing):
        await ask_async(host, str(workspace / "code" / "gone.pyz"))


def test_the_hosts_own_refusal_arrives_in_its_words(host: Host) -> None:
    from draftmill.jobs.models import StartRequest

    order = order_for("alpha")
    request = StartRequest(workspace=host.workspace, key=order.key("no-such-step", None), plan=order.plan)
    with connect(host) as session, pytest.raises(JobNeedsAPerson, match="'no-such-step' is no step"):
        session.call(ensure_code(session).zipapp, "start", request, 60)


def test_a_chatty_login_script_does_no_harm(host: Host, sshd: Sshd) -> None:
    zipapp = deliver_locally(host)
    sshd.stop()
    sshd.options["ForceCommand"] = 'echo welcome; echo; sh -c "$SSH_ORIGINAL_COMMAND"'
    with sshd.start(), connect(host) as session:
        assert session.call(zipapp, "status", absent(host), 60).state == "absent"


def test_a_call_has_a_time_limit(host: Host, tmp_path: Path) -> None:
    slow = tmp_path / "slow.pyz"
    slow.write_text("import time; time.sleep(30)")
    began = time.monotonic()
    with connect(host) as session, pytest.raises(HostUnreachable, match="broke during `job status`"):
        session.call(str(slow), "status", absent(host), 2)
    assert time.monotonic() - began < 10


def test_eight_at_once_get_past_few_start_ups_and_sessions(host: Host, sshd: Sshd) -> None:
    sshd.stop()
    sshd.options |= {"MaxStartups": "2:50:3", "MaxSessions": "2"}
    with sshd.start(), concurrent.futures.ThreadPoolExecutor(8) as pool:
        states = list(pool.map(lambda _: ask(host, 120).state, range(8)))
    assert states == ["absent"] * 8
