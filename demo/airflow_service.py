"""Airflow for the demo: four processes on SQLite, everything it needs in its environment, nothing from outside the repository.

Only the API server listens, on the loopback. The demo's user has a generated password.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import requests

from demo.processes import Background
from demo.ssh_host import LOOPBACK, Keys, user_name, write_private
from demo.state import CAMPAIGN, ROOT, Demo, sglang_python
from draftmill.files import read_json, write_json

USER = "demo"
HEALTHY_S = 240
COMPONENTS = {
    "api-server": ["api-server", "--workers", "1"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}
"""The log servers of scheduler and triggerer would listen on every address of the machine; here all share one log folder instead."""

KEPT = ("PATH", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ")


def free_port() -> int:
    """A port of the loopback that is free now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def api_port(demo: Demo) -> int:
    """The API server's port: chosen once, so that its address stays, and again where somebody else has taken it meanwhile."""
    path = demo.airflow / "port.json"
    port = read_json(path)
    if port is None or (not Background(demo).find("api-server") and not _is_free(port)):
        port = free_port()
        write_json(path, port)
    return int(port)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex((LOOPBACK, port)) != 0


def connection(demo: Demo) -> str:
    """The Airflow connection to the demo's host, as the JSON that AIRFLOW_CONN_GPU_HOST takes."""
    keys = Keys(demo.ssh)
    value = {
        "conn_type": "ssh",
        "host": LOOPBACK,
        "port": int(keys.port_file.read_text()),
        "login": user_name(),
        "extra": {
            "key_file": str(keys.client),
            "host_key": keys.host_public(),
            "look_for_keys": "false",
            "draftmill": {"python": str(sglang_python()), "workspace": str(demo.host)},
        },
    }
    return orjson.dumps(value).decode()


def environment(demo: Demo) -> dict[str, str]:
    """The whole environment of the Airflow processes."""
    port = api_port(demo)
    sections = {
        "CORE": {
            "DAGS_FOLDER": str(ROOT / "dags"),
            "PLUGINS_FOLDER": str(ROOT / "plugins"),
            "LOAD_EXAMPLES": "False",
            "EXECUTOR": "LocalExecutor",
            "PARALLELISM": "8",
            "DAGS_ARE_PAUSED_AT_CREATION": "False",
            "EXECUTION_API_SERVER_URL": f"http://{LOOPBACK}:{port}/execution/",
            "FERNET_KEY": "",
            "AUTH_MANAGER": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
            "SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(demo.airflow / "passwords.json"),
        },
        "DATABASE": {"SQL_ALCHEMY_CONN": f"sqlite:///{demo.airflow / 'airflow.db'}"},
        "API": {
            "HOST": LOOPBACK,
            "PORT": str(port),
            "BASE_URL": f"http://{LOOPBACK}:{port}",
            "SECRET_KEY": demo.secret("api"),
        },
        "API_AUTH": {"JWT_SECRET": demo.secret("jwt")},
        "LOGGING": {"BASE_LOG_FOLDER": str(demo.airflow / "logs")},
        "SCHEDULER": {"ENABLE_HEALTH_CHECK": "False"},
        "USAGE_DATA_COLLECTION": {"ENABLED": "False"},
    }
    settings = {f"AIRFLOW__{section}__{key}": value for section, keys in sections.items() for key, value in keys.items()}
    return {
        **{name: os.environ[name] for name in KEPT if name in os.environ},
        **settings,
        "HOME": str(demo.airflow),
        "AIRFLOW_HOME": str(demo.airflow),
        "AIRFLOW_CONN_GPU_HOST": connection(demo),
        "PYTHONPATH": str(ROOT / "include"),
        "DRAFTMILL_CONFIG": str(demo.config),
        "DRAFTMILL_CAMPAIGN": CAMPAIGN,
    }


def code_digest() -> str:
    """What Airflow runs of this project, as one hash."""
    total = hashlib.sha256()
    for folder in ("dags", "plugins", "include"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            total.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return total.hexdigest()


class AirflowService:
    """The four processes and their database."""

    def __init__(self, demo: Demo) -> None:
        self.demo = demo
        self.background = Background(demo)
        self.command = [sys.executable, "-m", "airflow"]

    @property
    def address(self) -> str:
        """Where UI and API are."""
        return f"http://{LOOPBACK}:{api_port(self.demo)}"

    def start(self) -> None:
        """Start what is not running. An Airflow whose settings or code have changed since is started anew: it keeps both in memory."""
        environ = environment(self.demo)
        known, wanted = self.demo.airflow / "started_with.json", {"environment": environ, "code": code_digest()}
        if read_json(known) != wanted:
            self.background.stop(COMPONENTS)
            self._migrate(environ)
            write_json(known, wanted, mode=0o600)
        for name, arguments in COMPONENTS.items():
            if self.background.find(name) is None:
                self.background.start(name, [*self.command, *arguments], environ)

    def _migrate(self, environ: dict[str, str]) -> None:
        self.demo.airflow.mkdir(parents=True, exist_ok=True)
        if not (self.demo.airflow / "started_with.json").exists():
            # A first migration that was interrupted leaves half a database, which a second one cannot continue.
            (self.demo.airflow / "airflow.db").unlink(missing_ok=True)
        passwords = orjson.dumps({USER: self.demo.secret("password")})
        write_private(self.demo.airflow / "passwords.json", passwords)
        log = self.background.log("db-migrate")
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as stream:
            outcome = subprocess.run([*self.command, "db", "migrate"], env=environ, stdout=stream, stderr=stream, check=False)
        if outcome.returncode:
            sys.exit(f"Airflow's database could not be made; the end of {log}:\n{tail(log)}")

    def wait_healthy(self, notice: Callable[[str], None]) -> None:
        """Return once API server, scheduler, DAG processor and triggerer say they are healthy. Exits where one of them died."""
        deadline = time.monotonic() + HEALTHY_S
        while time.monotonic() < deadline:
            for name in COMPONENTS:
                if self.background.find(name) is None:
                    log = self.background.log(name)
                    sys.exit(f"Airflow's {name} ended by itself; the end of {log}:\n{tail(log)}")
            waiting = self._unhealthy()
            if not waiting:
                return
            notice(f"waiting for Airflow: {', '.join(waiting)}")
            time.sleep(1)
        sys.exit(f"Airflow is not healthy after {HEALTHY_S} s; its output is in {self.demo.relative(self.demo.logs)}.")

    def _unhealthy(self) -> list[str]:
        try:
            answer = requests.get(f"{self.address}/api/v2/monitor/health", timeout=5).json()
        except (requests.RequestException, ValueError):
            return list(COMPONENTS)
        wanted = ("metadatabase", "scheduler", "dag_processor", "triggerer")
        return [name for name in wanted if (answer.get(name) or {}).get("status") != "healthy"]


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"({error})"
