"""Two hosts, each a real sshd: campaigns on both run at the same time, and those on one host one after the other. And a notifier."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.airflow.deployment import Deployment, Run
from tests.integration.airflow.live import DAG_ID, TESTS, Campaign, Live, tear_down
from tests.integration.rehearsal import REPOSITORY, rehearsal_tree, tell
from tests.integration.sshd import Sshd

pytestmark = [pytest.mark.airflow_live, pytest.mark.endurance, pytest.mark.timeout(1200)]

WAIT_S = 400

NOTIFIER = """
from airflow.sdk import BaseNotifier


class FileNotifier(BaseNotifier):
    template_fields = ("text",)

    def __init__(self, path, text):
        super().__init__()
        self.path, self.text = path, text

    def notify(self, context):
        with open(self.path, "a") as stream:
            stream.write(self.text + "\\n")
"""


@dataclass
class Host:
    """One of the hosts, as `live` sees it, its connection and its DAG."""

    live: Live
    conn_id: str
    dag_id: str
    told: Path

    def told_of(self, run: Run) -> list[str]:
        """What the notifier was told of a run: state and reason."""
        lines = [line.split("|") for line in self.told.read_text().splitlines()] if self.told.exists() else []
        return [f"{state}: {reason}" for run_id, state, reason in lines if run_id == run.run_id]

    def campaign(self, name: str, **changes: object) -> Campaign:
        """A campaign of one data set on this host; 1,000 tokens take it ten seconds."""
        return self.live.campaign(name, "alpha", ssh_conn_id=self.conn_id, **changes)

    def trigger(self, name: str) -> Run:
        """A run in this host's DAG."""
        return self.live.airflow.trigger(self.dag_id, campaign=name)


def write_configuration(folder: Path) -> Path:
    """A configuration with one data set and no campaign yet."""
    config = folder / "config"
    (config / "campaigns").mkdir(parents=True)
    shutil.copy(REPOSITORY / "include" / "config" / "servers.yaml", config)
    entry = {
        "sources": [{"path": "s/rows.jsonl"}],
        "adapter": "messages",
        "length_class": "short",
        "licence": "MIT",
        "expected_tokens": 100,
    }
    (config / "datasets.yaml").write_text(json.dumps({"alpha": entry}))
    return config


def include_with_notifier(folder: Path) -> Path:
    """The rehearsal's tree with a notifier, and with stalls that are stalls after six seconds instead of ten minutes."""
    include = rehearsal_tree(folder)
    (include / "file_notifier.py").write_text(NOTIFIER)
    watch = include / "draftmill_airflow" / "watch.py"
    text = watch.read_text()
    assert "STALL_S = 600" in text
    watch.write_text(text.replace("STALL_S = 600", "STALL_S = 6"))
    trigger = include / "draftmill_airflow" / "trigger.py"
    trigger.write_text(trigger.read_text().replace("WAIT_S = 45.0", "WAIT_S = 2.0"))
    return include


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    """One Airflow and two hosts, each with a workspace, keys and a port of its own."""
    folder = tmp_path_factory.mktemp("hosts")
    config, dags = write_configuration(folder), folder / "dags"
    shutil.copytree(TESTS / "dags", dags, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "dags" / f"{DAG_ID}.py", dags)
    conn_ids = ("gpu_a", "gpu_b")
    sshds = [Sshd(folder / conn_id / "sshd").start() for conn_id in conn_ids]
    told = folder / "told.txt"
    notifier = {
        "class": "file_notifier.FileNotifier",
        "kwargs": {"path": str(told), "text": "{{ dag_run.run_id }}|{{ dag_run.state }}|{{ reason }}"},
    }
    env = {"DRAFTMILL_CONFIG": str(config), "DRAFTMILL_CAMPAIGN": "first_a,first_b", "DRAFTMILL_NOTIFIER": json.dumps(notifier)}
    for conn_id, sshd in zip(conn_ids, sshds, strict=True):
        env[f"AIRFLOW_CONN_{conn_id.upper()}"] = sshd.connection_json(folder / conn_id / "workspace")
    airflow = Deployment(folder / "home", include_with_notifier(folder), dags, REPOSITORY / "plugins", env)
    lives = [Live(airflow, sshd, folder / conn_id / "workspace", config) for conn_id, sshd in zip(conn_ids, sshds, strict=True)]
    first, second = Host(lives[0], "gpu_a", DAG_ID, told), Host(lives[1], "gpu_b", f"{DAG_ID}__gpu_b", told)
    first.campaign("first_a")
    second.campaign("first_b")
    try:
        airflow.start().wait_until_healthy()
        airflow.wait_for_dag(first.dag_id)
        airflow.wait_for_dag(second.dag_id)
        yield first, second
    finally:
        for live in lives:
            tear_down(live)


def test_campaigns_on_two_hosts_generate_at_the_same_time_and_on_one_host_in_turn(hosts: tuple[Host, Host]) -> None:
    first, second = hosts
    # Long enough that the one is still at it once the other is, however slowly Airflow schedules.
    one, other = first.campaign("long", tokens_per_dataset=100_000), second.campaign("short", tokens_per_dataset=1_000)
    long, waiting = first.trigger("long"), first.trigger("first_a")
    long.wait_for_state("dataset.generate[alpha]", {"deferred"}, 300)
    short = second.trigger("short")
    assert short.wait(WAIT_S) == "success"
    other.check_rows("alpha", 100)
    # Nothing of the first host's run takes a worker slot now, and its second run waits all the same.
    assert long.states()["dataset.generate[alpha]"] == "deferred"
    assert waiting.get()["state"] == "queued"
    first.live.airflow.api("PATCH", long.path, {"state": "failed"})
    assert waiting.wait(WAIT_S) == "success"
    assert not (first.live.workspace / "campaigns" / "short").exists()
    assert not (second.live.workspace / "campaigns" / "long").exists()
    assert 0 < len(one.rows("alpha")) < 10_000
    one.check_rows("alpha", len(one.rows("alpha")))
    for run, host in ((waiting, first), (short, second)):
        assert run.result("plan", "order")["conn_id"] == host.conn_id
        assert run.get()["note"].startswith("draftmill: ")


def test_a_campaign_in_the_dag_of_another_host_is_refused_and_nothing_is_started(hosts: tuple[Host, Host]) -> None:
    first, second = hosts
    second.campaign("elsewhere")
    run = first.trigger("elsewhere")
    assert run.wait(WAIT_S) == "failed"
    sentence = "parameter campaign: elsewhere is on host gpu_b, but this DAG works on gpu_a alone; trigger generate_drafter_data__gpu_b"
    assert sentence in run.log("plan")
    assert not any((host.live.workspace / "campaigns" / "elsewhere").exists() for host in hosts)


def test_each_host_publishes_its_corpus_once(hosts: tuple[Host, Host]) -> None:
    first, second = hosts
    for host in (first, second):
        host.campaign(f"twice_{host.conn_id}")
    for state in ("success", "skipped"):
        runs = [host.trigger(f"twice_{host.conn_id}") for host in hosts]
        assert [run.wait(WAIT_S) for run in runs] == ["success", "success"]
        assert [run.states()["publish"] for run in runs] == [state, state]


def test_a_run_that_is_cleared_waits_for_the_one_that_runs(hosts: tuple[Host, Host]) -> None:
    first, _ = hosts
    first.campaign("done")
    first.campaign("busy", tokens_per_dataset=100_000)
    cleared = first.trigger("done")
    assert cleared.wait(WAIT_S) == "success"
    busy = first.trigger("busy")
    busy.wait_for_state("dataset.generate[alpha]", {"deferred"}, 300)
    cleared.clear("dataset.generate[alpha]")
    assert cleared.get()["state"] == "queued"
    # A scheduler that did not hold it back would have started it by the time it has started the tasks of another DAG's run.
    assert hosts[1].trigger("first_b").wait(WAIT_S) == "success"
    assert (cleared.get()["state"], busy.states()["dataset.generate[alpha]"]) == ("queued", "deferred")
    first.live.airflow.api("PATCH", busy.path, {"state": "failed"})
    assert cleared.wait(WAIT_S) == "success"


def test_a_stall_is_told_once_by_the_triggerer_and_the_end_of_the_run_by_airflow(hosts: tuple[Host, Host]) -> None:
    first, _ = hosts
    first.campaign("stalls")
    told = tell(first.live.workspace, "generate", "alpha", do="stall", seconds=45)
    run = first.trigger("stalls")
    try:
        first.live.airflow.wait_for(lambda: first.told_of(run), "a stall to be told of", 240)
    finally:
        told.unlink()
    assert run.wait(WAIT_S) == "success"
    stall, end = first.live.airflow.wait_for(lambda: len(first.told_of(run)) > 1 and first.told_of(run), "the end to be told of", 120)
    assert stall == "running: stalls/generate/alpha: no new token for 0 min with 3 requests in flight; see the server's log"
    assert end.startswith("success: ")
    log = run.log("dataset.generate[alpha]")
    assert log.count("no new token for") > 1
    assert log.count("the notifier was told") == 1
