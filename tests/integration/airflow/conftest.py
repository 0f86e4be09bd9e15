"""A real sshd, and jobs whose steps do as they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from draftmill.jobs import bundle
from draftmill.jobs.models import JobKey, StatusRequest, StopRequest
from draftmill_airflow import delivery
from draftmill_airflow.host import Host
from draftmill_airflow.order import Order
from tests.integration.airflow.live import CONN_ID, Live, set_up, tear_down
from tests.integration.rehearsal import rehearsal_tree
from tests.integration.sshd import Sshd
from tests.plans import make_dataset, make_plan


@pytest.fixture(scope="session")
def include(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of include/ with the rehearsal's steps."""
    return rehearsal_tree(tmp_path_factory.mktemp("rehearsal"))


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A whole deployment. Starting it takes a minute, so all tests of a session share it."""
    made = set_up(tmp_path_factory.mktemp("live"))
    yield made
    tear_down(made)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    with Sshd(tmp_path / "sshd") as server:
        yield server


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch, sshd: Sshd, workspace: Path) -> Callable[..., Host]:
    """Defines the Airflow connection to the sshd; arguments change keys of its extra field."""

    def define(**changes: Any) -> Host:
        monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", sshd.connection_json(workspace, **changes))
        return Host.load(CONN_ID)

    return define


@pytest.fixture
def host(connection: Callable[..., Host], monkeypatch: pytest.MonkeyPatch, include: Path) -> Iterator[Host]:
    """The host, reached with the default connection; what is delivered to it is the rehearsal. No job outlives the test."""
    monkeypatch.setattr(delivery, "build", lambda folder: bundle.build(folder, include))
    found = connection()
    yield found
    stop_all(found)


def order_for(*names: str, budget_tokens: int = 100, dry_run: bool = False, **changes: Any) -> Order:
    """An order of small data sets: ten tokens a row; `expected_tokens` milliseconds a row."""
    values: dict[str, Any] = {"budget_tokens": budget_tokens, "expected_tokens": 50} | changes
    datasets = [make_dataset(name, **values) for name in names or ("alpha",)]
    return Order(conn_id=CONN_ID, dry_run=dry_run, plan=make_plan(*datasets))


def job_keys(workspace: str) -> list[JobKey]:
    """Keys of all jobs that were ever started in a workspace."""
    jobs = Path(workspace).glob("campaigns/*/jobs/**/process.json")
    parts = [path.parent.relative_to(Path(workspace) / "campaigns").parts for path in jobs]
    return [JobKey(campaign=part[0], task=part[2], dataset=part[3] if len(part) > 3 else None) for part in parts]


def stop_all(host: Host) -> None:
    from draftmill.jobs import stop

    for key in job_keys(host.workspace):
        stop(StopRequest(workspace=host.workspace, key=key, grace_s=2))


def look(host: Host, key: JobKey) -> Any:
    """The state of a job, read on this machine, which is the host."""
    from draftmill.jobs import status

    return status(StatusRequest(workspace=host.workspace, key=key))


def secret_in_files(folder: Path, secret: str) -> list[str]:
    """Files below `folder` that others may read and that hold the secret."""
    readable = (path for path in folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o044)
    return [str(path) for path in readable if secret.encode() in path.read_bytes()]


def deliver_locally(host: Host) -> str:
    """The rehearsal's zipapp in the workspace, put there without SFTP."""
    folder = Path(host.workspace) / "code"
    folder.mkdir(parents=True, exist_ok=True)
    return str(delivery.build(folder))
