"""Airflow's REST API, as far as the demo needs it: a token, one DAG, its runs, their tasks."""

from __future__ import annotations

import time
from typing import Any

import requests

DAG = "generate_drafter_data"
ENDED = frozenset({"success", "failed", "upstream_failed", "skipped", "removed"})


class ApiError(Exception):
    """Airflow refused a request; the message holds what it said."""


class Api:
    """One logged-in session."""

    def __init__(self, address: str, user: str, password: str) -> None:
        self.address = address
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy of the machine has nothing to do with the loopback
        answer = self._session.post(f"{address}/auth/token", json={"username": user, "password": password}, timeout=30)
        if not answer.ok:
            raise ApiError(f"login as {user}: {answer.status_code} {answer.text[:300]}")
        self._session.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"

    def call(self, method: str, path: str, **options: Any) -> Any:
        """One request below /api/v2. ApiError with Airflow's words where it is refused; tried again while Airflow is busy."""
        for attempt in range(5):
            answer = self._session.request(method, f"{self.address}/api/v2/{path}", timeout=60, **options)
            if answer.status_code < 500:
                break
            time.sleep(1 + attempt)
        if not answer.ok:
            raise ApiError(f"{method} {path}: {answer.status_code} {answer.text[:500]}")
        return answer.json()

    def dag_is_known(self) -> bool:
        """Whether the DAG has been parsed."""
        answer = self._session.get(f"{self.address}/api/v2/dags/{DAG}", timeout=60)
        return bool(answer.ok)

    def import_errors(self) -> list[str]:
        """What kept a DAG file from being parsed."""
        return [error["stack_trace"] for error in self.call("GET", "importErrors")["import_errors"]]

    def active_run(self) -> str | None:
        """The run that is queued or running, if any."""
        runs = self.call("GET", f"dags/{DAG}/dagRuns", params={"state": ["queued", "running"]})["dag_runs"]
        return runs[0]["dag_run_id"] if runs else None

    def trigger(self, conf: dict[str, Any]) -> str:
        """Start a run; returns its id."""
        return str(self.call("POST", f"dags/{DAG}/dagRuns", json={"logical_date": None, "conf": conf})["dag_run_id"])

    def run(self, run_id: str) -> dict[str, Any]:
        """The run as it is now."""
        found: dict[str, Any] = self.call("GET", f"dags/{DAG}/dagRuns/{run_id}")
        return found

    def tasks(self, run_id: str) -> list[dict[str, Any]]:
        """All task instances of the run."""
        path = f"dags/{DAG}/dagRuns/{run_id}/taskInstances"
        found: list[dict[str, Any]] = self.call("GET", path, params={"limit": 1000})["task_instances"]
        return found

    def result(self, run_id: str, task_id: str, map_index: int = -1) -> Any:
        """What a task returned."""
        path = f"dags/{DAG}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/return_value"
        return self.call("GET", path, params={"map_index": map_index, "deserialize": "false"})["value"]

    def log_lines(self, run_id: str, task: dict[str, Any]) -> list[str]:
        """The log of a task's last try; of an exception, its type and sentence."""
        path = f"dags/{DAG}/dagRuns/{run_id}/taskInstances/{task['task_id']}/logs/{max(task['try_number'], 1)}"
        content = self.call("GET", path, params={"map_index": task["map_index"]})["content"]
        return [line for entry in content for line in _lines(entry) if not line.startswith("::")]


def _lines(entry: Any) -> list[str]:
    if not isinstance(entry, dict):
        return str(entry).splitlines()
    causes = [f"{cause['exc_type']}: {cause['exc_value']}" for cause in entry.get("error_detail") or []]
    return [*str(entry.get("event", "")).splitlines(), *causes]
