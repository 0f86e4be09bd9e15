"""A whole Airflow on free ports of the loopback: api-server, scheduler, dag-processor and triggerer, each a process of its own.

It has its own AIRFLOW_HOME (SQLite), and Python's path leads to a given copy of include/. Components can be killed and started again.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil

from tests.integration.sshd import free_port

COMPONENTS = {
    "api-server": ["api-server"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}

FINISHED = frozenset({"success", "failed"})


class Deployment:
    """One Airflow. `env` adds to the environment of all components."""

    def __init__(self, home: Path, include: Path, dags: Path, plugins: Path, env: dict[str, str] | None = None) -> None:
        self.home = home
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._token = ""
        home.mkdir(parents=True, exist_ok=True)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "DRAFTMILL"))}
        self.env |= self._settings(include, dags, plugins) | (env or {})

    def _settings(self, include: Path, dags: Path, plugins: Path) -> dict[str, str]:
        core, api = "AIRFLOW__CORE__", "AIRFLOW__API__"
        return {
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
            "PYTHONPATH": str(include),
            "AIRFLOW_HOME": str(self.home),
            f"{core}DAGS_FOLDER": str(dags),
            f"{core}PLUGINS_FOLDER": str(plugins),
            f"{core}LOAD_EXAMPLES": "false",
            f"{core}EXECUTOR": "LocalExecutor",
            f"{core}PARALLELISM": "8",
            f"{core}DAGS_ARE_PAUSED_AT_CREATION": "false",
            f"{core}SIMPLE_AUTH_MANAGER_ALL_ADMINS": "true",
            f"{core}EXECUTION_API_SERVER_URL": f"{self.base}/execution/",
            f"{core}FERNET_KEY": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
            f"{api}HOST": "127.0.0.1",
            f"{api}PORT": str(self.port),
            f"{api}BASE_URL": self.base,
            f"{api}WORKERS": "1",
            f"{api}SECRET_KEY": secrets.token_hex(16),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home}/airflow.db",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "30",
            "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "20",
            "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "false",
        }

    def start(self, *names: str) -> Deployment:
        """Start components; all of them, after a migration of the database, where none is named."""
        if not names:
            subprocess.run(["airflow", "db", "migrate"], env=self.env, check=True, stdout=subprocess.DEVNULL, timeout=240)
        for name in names or COMPONENTS:
            with (self.home / f"{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    ["airflow", *COMPONENTS[name]], env=self.env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
                )
        return self

    def wait_until_healthy(self, timeout_s: float = 300) -> Deployment:
        """Return once all four components have a fresh heartbeat."""
        self.wait_for(self._healthy, "a healthy Airflow", timeout_s)
        return self

    def _healthy(self) -> bool:
        try:
            answer = self.api("GET", "/api/v2/monitor/health")
        except OSError:
            return False
        return all(
            (answer.get(part) or {}).get("status") == "healthy" for part in ("metadatabase", "scheduler", "dag_processor", "triggerer")
        )

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a component and all its processes, tasks included, and wait until they are gone."""
        process = self.processes.pop(name)
        with contextlib.suppress(psutil.NoSuchProcess):
            tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            for member in tree if number == signal.SIGKILL else tree[:1]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.send_signal(number)
            _, alive = psutil.wait_procs(tree, timeout=60)
            for member in alive:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
        process.wait(timeout=30)

    def stop(self) -> None:
        """End everything."""
        for name in list(self.processes):
            self.kill(name)

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """Call the REST API; the answer's JSON. OSError where the server cannot be reached, HTTPError (one too) for 4xx and 5xx."""
        if not self._token:
            self._token = self._call("GET", "/auth/token")["access_token"]
        return self._call(method, path, body)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, method=method, data=data, headers={"Content-Type": "application/json"})
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        with urllib.request.urlopen(request, timeout=30) as response:
            text = response.read()
        return json.loads(text) if text else None

    def wait_for(self, condition: Callable[[], Any], what: str, timeout_s: float = 120) -> Any:
        """The first truthy value of `condition`; AssertionError, with the ends of the components' logs, after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            if value := condition():
                return value
            assert time.monotonic() < deadline, f"no {what} after {timeout_s:.0f} s\n{self.log_ends()}"
            time.sleep(0.5)

    def log_ends(self, characters: int = 1500) -> str:
        """What the components said last."""
        paths = [self.home / f"{name}.log" for name in COMPONENTS]
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-characters:]}" for path in paths if path.exists())

    def wait_for_dag(self, dag_id: str) -> None:
        """Return once the DAG was parsed."""

        def parsed() -> bool:
            errors = self.api("GET", "/api/v2/importErrors")["import_errors"]
            assert not errors, errors
            try:
                return bool(self.api("GET", f"/api/v2/dags/{dag_id}"))
            except urllib.error.HTTPError:
                return False

        self.wait_for(parsed, f"DAG {dag_id}")

    def trigger(self, dag_id: str, **conf: Any) -> Run:
        """Start a run with these parameters."""
        body = {"conf": conf, "logical_date": datetime.now(timezone.utc).isoformat()}
        return Run(self, dag_id, self.api("POST", f"/api/v2/dags/{dag_id}/dagRuns", body)["dag_run_id"])


def _log_line(entry: str | dict[str, Any]) -> str:
    if isinstance(entry, str):
        return entry
    errors = [f"{error.get('exc_type')}: {error.get('exc_value')}" for error in entry.get("error_detail") or []]
    return "\n".join([str(entry.get("event")), *errors])


class Run:
    """One DAG run."""

    def __init__(self, deployment: Deployment, dag_id: str, run_id: str) -> None:
        self.deployment = deployment
        self.dag_id = dag_id
        self.run_id = run_id
        self.path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}"

    def get(self) -> dict[str, Any]:
        """The run as the API shows it."""
        found: dict[str, Any] = self.deployment.api("GET", self.path)
        return found

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Task instances by `task_id`, or `task_id[label]` where mapped; the label is the rendered one."""
        found = self.deployment.api("GET", f"{self.path}/taskInstances?limit=500")["task_instances"]
        return {
            entry["task_id"]
            if entry["map_index"] < 0
            else f"{entry['task_id']}[{entry['rendered_map_index'] or entry['map_index']}]": entry
            for entry in found
        }

    def states(self) -> dict[str, str | None]:
        """States by name."""
        return {name: entry["state"] for name, entry in self.tasks().items()}

    def wait(self, timeout_s: float = 240) -> str:
        """The state in which the run ends."""
        run = self.deployment.wait_for(lambda: (found := self.get())["state"] in FINISHED and found, f"end of {self.run_id}", timeout_s)
        return str(run["state"])

    def wait_for_state(self, name: str, states: Iterable[str], timeout_s: float = 120) -> dict[str, Any]:
        """The task instance once it is in one of the states."""
        wanted = set(states)

        def reached() -> dict[str, Any] | None:
            entry = self.tasks().get(name)
            return entry if entry and entry["state"] in wanted else None

        found: dict[str, Any] = self.deployment.wait_for(reached, f"{name} in {wanted}; it is {self.states().get(name)}", timeout_s)
        return found

    def log(self, name: str, try_number: int | None = None) -> str:
        """The log of a try of a task, the last one where none is named, one event a line."""
        entry = self.tasks()[name]
        number = try_number or entry["try_number"]
        answer = self.deployment.api(
            "GET", f"{self.path}/taskInstances/{entry['task_id']}/logs/{number}?map_index={entry['map_index']}&full_content=true"
        )
        return "\n".join(_log_line(line) for line in answer["content"])

    def result(self, name: str, key: str = "return_value") -> Any:
        """An XCom of a task, as it was returned."""
        entry = self.tasks()[name]
        path = f"{self.path}/taskInstances/{entry['task_id']}/xcomEntries/{key}?map_index={entry['map_index']}&deserialize=true"
        return self.deployment.api("GET", path)["value"]

    def clear(self, *names: str, only_failed: bool = False, downstream: bool = True) -> None:
        """Clear tasks as the page does; the whole run where none is named."""
        body: dict[str, Any] = {
            "dry_run": False,
            "dag_run_id": self.run_id,
            "only_failed": only_failed,
            "include_downstream": downstream,
            "reset_dag_runs": True,
        }
        if names:
            tasks = self.tasks()
            body["task_ids"] = [
                tasks[name]["task_id"] if tasks[name]["map_index"] < 0 else [tasks[name]["task_id"], tasks[name]["map_index"]]
                for name in names
            ]
        self.deployment.api("POST", f"/api/v2/dags/{self.dag_id}/clearTaskInstances", body)

    def mark(self, name: str, state: str) -> None:
        """Mark a task instance as a person does."""
        entry = self.tasks()[name]
        index = f"/{entry['map_index']}" if entry["map_index"] >= 0 else ""
        self.deployment.api("PATCH", f"{self.path}/taskInstances/{entry['task_id']}{index}", {"new_state": state})
