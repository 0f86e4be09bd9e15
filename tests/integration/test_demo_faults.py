"""The whole job when things go wrong: bad parameters, a generation client killed in mid-run, one data set that fails and is retried."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from demo.airflow_service import AirflowService
from demo.api import DAG, Api
from demo.run import Notice, bring_up, prepare_host
from demo.run import stop as stop_demo
from demo.state import ROOT, Demo

from draftmill.jobs.detached import DetachedProcess

SGLANG_PYTHON = Path(os.environ.get("DRAFTMILL_SGLANG_PYTHON") or ROOT / ".venv-sglang" / "bin" / "python")
SECONDS = 1500

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.airflow_live,
    pytest.mark.slow,
    pytest.mark.timeout(SECONDS),
    pytest.mark.skipif(not SGLANG_PYTHON.exists(), reason=f"the real SGLang environment is absent: {SGLANG_PYTHON}; `make setup` makes it"),
]


@dataclass
class Deployment:
    """A demo that runs, and its API."""

    demo: Demo
    api: Api

    def trigger(self, **conf: Any) -> str:
        return self.api.trigger({"campaign": "demo", **conf})

    def ended(self, run_id: str, seconds: float = 900) -> str:
        """The state in which the run ended."""
        wait(lambda: self.api.run(run_id)["state"] in ("success", "failed"), seconds, f"{run_id} does not end")
        return str(self.api.run(run_id)["state"])

    def states(self, run_id: str) -> dict[str, str]:
        """The state of every task, mapped ones by their label."""
        return {f"{task['task_id']}:{task.get('rendered_map_index') or ''}": task["state"] for task in self.api.tasks(run_id)}

    def log(self, run_id: str, task_id: str) -> str:
        (task,) = [task for task in self.api.tasks(run_id) if task["task_id"] == task_id]
        return "\n".join(self.api.log_lines(run_id, task))

    def clear(self, run_id: str, task_id: str, label: str) -> None:
        """Clear one index of a mapped task with everything downstream, as the button does."""
        (index,) = [t["map_index"] for t in self.api.tasks(run_id) if t["task_id"] == task_id and t.get("rendered_map_index") == label]
        body = {"dry_run": False, "dag_run_id": run_id, "task_ids": [[task_id, index]], "include_downstream": True, "reset_dag_runs": True}
        self.api.call("POST", f"dags/{DAG}/clearTaskInstances", json=body)

    def rows(self, name: str) -> list[dict[str, Any]]:
        path = self.demo.campaign.journal(name)
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


def wait(ready: Callable[[], bool], seconds: float, failure: str) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, failure
        time.sleep(0.2)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    demo = Demo(tmp_path_factory.mktemp("faulty"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTMILL_DEMO_DIR", str(demo.root))
        patch.setenv("DRAFTMILL_SGLANG_PYTHON", str(SGLANG_PYTHON))
        patch.setenv("PYTHONPATH", str(ROOT / "include"))
        try:
            prepare_host(demo)
            yield Deployment(demo, bring_up(demo, AirflowService(demo), Notice()))
        finally:
            assert stop_demo(demo) == 0


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"datasets": ["B1_glaive", "B9_unheard_of"]}, ["datasets", "B9_unheard_of"]),
        ({"tokens_per_dataset": 0}, ["tokens_per_dataset", "greater than 0"]),
        ({"campaign": "x; touch PWNED"}, ["campaign", "x; touch PWNED"]),
        ({"datasets": ["B1_glaive", "B1_glaive"]}, ["datasets", "B1_glaive more than once"]),
    ],
)
def test_bad_parameters_are_refused_by_plan_and_nothing_runs_on_the_host(
    deployment: Deployment, conf: dict[str, Any], words: list[str]
) -> None:
    pwned = deployment.demo.home / "PWNED"
    run_id = deployment.trigger(
        **{key: str(pwned).join(value.split("PWNED")) if key == "campaign" else value for key, value in conf.items()}
    )
    assert deployment.ended(run_id) == "failed"
    assert deployment.states(run_id)["plan:"] == "failed"
    log = deployment.log(run_id, "plan")
    for word in words:
        assert str(pwned).join(word.split("PWNED")) in log
    assert not pwned.exists()
    assert not (deployment.demo.host / "campaigns").exists()
    assert not list(deployment.demo.host.rglob("process.json")), "no job was started"


def test_a_killed_client_continues_and_one_failed_data_set_leaves_the_others_alone(deployment: Deployment) -> None:
    """B6 has lost its file, and the client of B4 is killed: seven data sets finish, B6 is retried alone, and there is one merge."""
    demo, victim, ill = deployment.demo, "B4_mixturethoughts", "B6_ultrachat"
    sample = demo.host / "samples" / f"{ill}.parquet"
    sample.rename(sample.with_suffix(".away"))
    run_id = deployment.trigger()

    client = DetachedProcess(demo.campaign.job("generate", victim))
    wait(lambda: client.alive() and len(deployment.rows(victim)) > 20, 400, f"{victim} does not generate")
    pid = client.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    at_the_kill = deployment.rows(victim)

    assert deployment.ended(run_id) == "failed", "a run with a failed data set is not green"
    states = deployment.states(run_id)
    assert states[f"dataset.prepare:{ill}"] == "failed"
    finished = {label.partition(":")[2] for label, state in states.items() if label.startswith("dataset.tokenize:") and state == "success"}
    assert len(finished) == 7
    assert ill not in finished
    assert not demo.campaign.corpus.exists(), "nothing is merged while a data set is missing"

    rows = deployment.rows(victim)
    assert client.pid != pid, "the task was tried again"
    assert rows[: len(at_the_kill)] == at_the_kill, "no completed response is lost"
    assert len({row["id"] for row in rows}) == len(rows), "no id is there twice"
    assert abs(sum(row["completion_tokens"] for row in rows) - 14_400) <= 144

    before = {name: demo.campaign.journal(name).read_bytes() for name in finished}
    sample.with_suffix(".away").rename(sample)
    deployment.clear(run_id, "dataset.prepare", ill)
    assert deployment.ended(run_id) == "success"
    assert {name: demo.campaign.journal(name).read_bytes() for name in finished} == before
    merges = [task for task in deployment.api.tasks(run_id) if task["task_id"] == "merge"]
    assert [task["try_number"] for task in merges] == [1], "merged once"
    corpus = [json.loads(line) for line in (demo.campaign.corpus / "train.jsonl").read_text().splitlines()]
    assert {row["dataset"] for row in corpus} == finished | {ill}
    assert sum(sum(row["loss_mask"]) for row in corpus) == deployment.api.result(run_id, "merge")["loss_tokens"]
    server = DetachedProcess(demo.workspace.server)
    assert not server.alive(), "the server was brought up again for one data set, and stopped"
