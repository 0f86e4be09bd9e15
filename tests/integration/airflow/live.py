"""A whole deployment and its host: Airflow on the loopback, a real sshd, campaigns whose steps do as they are told."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from draftmill.jobs.models import JobKey
from draftmill_airflow.order import Order
from tests.integration.airflow.deployment import Deployment, Run
from tests.integration.rehearsal import REPOSITORY, rehearsal_tree
from tests.integration.sshd import Sshd

DAG_ID = "generate_drafter_data"
CONN_ID = "test_host"
SECRET = "hf_dontshowthistoanyone"
DATASETS = ("alpha", "beta", "gamma")
TESTS = Path(__file__).parent


@dataclass
class Live:
    """One deployment, shared by all tests of a session: each test works on campaigns of its own."""

    airflow: Deployment
    sshd: Sshd
    workspace: Path
    config: Path

    def campaign(self, name: str, *datasets: str, **changes: Any) -> Campaign:
        """Write a campaign file. By default: three data sets of 300 tokens, which is 30 rows, 0.1 s each."""
        values: dict[str, Any] = {
            "name": name,
            "ssh_conn_id": CONN_ID,
            "server": "tiny-cpu",
            "tokens_per_dataset": 300,
            "datasets": [{"name": dataset} for dataset in datasets or DATASETS],
            "classes": {"short": {"max_new_tokens": 64}},
        }
        (self.config / "campaigns" / f"{name}.yaml").write_text(json.dumps(values | changes))
        return Campaign(self, name)

    def one_job(self, order: Order) -> Run:
        """Run the DAG that has jobs and nothing else."""
        return self.airflow.trigger("one_job", order=order.model_dump(mode="json"))


@dataclass
class Campaign:
    """What a test does with a campaign, and what it finds of it on the host."""

    live: Live
    name: str

    @property
    def folder(self) -> Path:
        return self.live.workspace / "campaigns" / self.name

    def trigger(self, **params: Any) -> Run:
        """Start a run of the real DAG."""
        return self.live.airflow.trigger(DAG_ID, campaign=self.name, **params)

    def events(self) -> list[str]:
        """What the steps did, in order."""
        path = self.folder / "events.log"
        return path.read_text().splitlines() if path.exists() else []

    def count(self, text: str) -> int:
        return sum(event.startswith(text) for event in self.events())

    def rows(self, dataset: str) -> list[int]:
        """Row numbers in the order in which they were written."""
        path = self.folder / f"{dataset}.rows"
        return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []

    def processes(self, dataset: str) -> set[str]:
        """Pids that wrote rows."""
        return {line.split()[1] for line in (self.folder / f"{dataset}.rows").read_text().splitlines()}

    def server_is_up(self) -> bool:
        return (self.folder / "server.up").exists()

    def check_over(self, told_to_stop: bool = True) -> None:
        """No job of this campaign runs, no data set ever had two writers, and the server is down, where anybody told it to stop."""
        assert self.server_is_up() != told_to_stop
        assert not [job for job in job_processes(self.live.workspace) if f"campaigns/{self.name}/" in " ".join(job.cmdline())]
        assert not list(self.folder.glob("*.two-writers"))

    def check_rows(self, dataset: str, count: int) -> None:
        """Each row once, in order, by one writer at a time."""
        assert self.rows(dataset) == list(range(count))
        assert not (self.folder / f"{dataset}.two-writers").exists()


def job_processes(workspace: Path, key: JobKey | None = None) -> list[psutil.Process]:
    """Processes of jobs of a workspace, found by their command line."""
    part = str(workspace / "campaigns") if key is None else f"{key.campaign}/jobs/{key.task}/{key.dataset}"
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "run-job" in words and any(part in word for word in words):
            found.append(process)
    return found


def set_up(folder: Path, **sshd_options: str) -> Live:
    """Start everything; takes a minute."""
    include = rehearsal_tree(folder)
    config, dags, workspace = folder / "config", folder / "dags", folder / "workspace"
    (config / "campaigns").mkdir(parents=True)
    shutil.copy(REPOSITORY / "include" / "config" / "servers.yaml", config)
    entry = {"sources": [{"path": "s/rows.jsonl"}], "adapter": "messages", "length_class": "short", "licence": "MIT"}
    names = [*DATASETS, *(f"d{number}" for number in range(8))]
    (config / "datasets.yaml").write_text(json.dumps({name: entry | {"expected_tokens": 100 - index} for index, name in enumerate(names)}))
    shutil.copytree(TESTS / "dags", dags, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "dags" / f"{DAG_ID}.py", dags)
    sshd = Sshd(folder / "sshd", **sshd_options).start()
    connection = sshd.connection_json(
        workspace, draftmill={"python": sys.executable, "workspace": str(workspace), "secrets": {"HF_TOKEN": SECRET}}
    )
    env = {f"AIRFLOW_CONN_{CONN_ID.upper()}": connection, "DRAFTMILL_CONFIG": str(config), "DRAFTMILL_CAMPAIGN": "main"}
    live = Live(Deployment(folder / "home", include, dags, REPOSITORY / "plugins", env), sshd, workspace, config)
    live.campaign("main")
    try:
        live.airflow.start().wait_until_healthy()
        live.airflow.wait_for_dag(DAG_ID)
        live.airflow.wait_for_dag("one_job")
    except BaseException:
        tear_down(live)
        raise
    return live


def tear_down(live: Live) -> None:
    """End everything, jobs on the host included."""
    live.airflow.stop()
    live.sshd.stop()
    for process in job_processes(live.workspace):
        process.kill()
