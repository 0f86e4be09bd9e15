"""The simulated server as its own process, and what its supervisor would do for it: start it, notice its end, bring it back."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import requests

from draftmill.files import write_json
from draftmill.serving.ports import free_port
from draftmill.simulator import serve
from draftmill.simulator.server import SimulatedServer
from tests.integration.generation.schedules import MAX_TOKENS, MEAN_TOKENS, SPEEDUP

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT)])}
START_S = 60.0


def options(port: int, seed: int) -> list[str]:
    """The command line of `simulate serve`."""
    values = {
        "host-profile": "h200",
        "port": port,
        "seed": seed,
        "speedup": SPEEDUP,
        "mean-tokens": MEAN_TOKENS,
        "max-tokens": MAX_TOKENS,
        "vocab-size": 1_000,
        "context-length": 8_192,
        "kv-tokens": 40_000,
    }
    return [f"--{name}={value}" for name, value in values.items()]


class Supervised:
    """Server processes on one port, one at a time. The file at `path` tells clients about the present one."""

    def __init__(self, path: Path, seed: int) -> None:
        self._path = path
        self._log = path.with_suffix(".log")
        self._options = options(free_port("127.0.0.1"), seed)
        parser = argparse.ArgumentParser()
        serve.add_arguments(parser)
        self.model: SimulatedServer = serve.build_server(parser.parse_args(self._options))
        """A server with the same answers that is never started."""

        self._incarnation = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._started_at = 0.0
        self._down_until: float | None = 0.0
        self._tell()

    def __enter__(self) -> Supervised:
        self.look()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def look(self) -> None:
        """Do what is due: start a process, notice that it is ready, restart one that was reported or is dead."""
        if self._process is None:
            if self._down_until is not None and time.monotonic() >= self._down_until:
                self._start()
            return
        if not self._ready:
            self._ready = serve.READY_LINE in self._log.read_text()
            if self._ready:
                self._tell()
            assert time.monotonic() - self._started_at < START_S, "the simulated server does not start"
        if self._process.poll() is not None or self._path.with_name(f"{self._path.name}.wedged-{self._incarnation}").exists():
            self.kill(0.0)

    def kill(self, down_s: float | None) -> None:
        """SIGKILL; a new process after `down_s` seconds, or none until `revive`."""
        self._end()
        self._down_until = None if down_s is None else time.monotonic() + down_s
        self._tell()

    def revive(self) -> None:
        """Bring it back where it was given up."""
        if self._down_until is None:
            self._down_until = 0.0
            self._tell()

    def add_fault(self, fault: dict[str, Any]) -> None:
        """Ask the present process for a fault; one that is down already has its misfortune."""
        try:
            answer = requests.post(f"{self.model.base_url}/simulator/faults", json=fault, timeout=10)
        except requests.ConnectionError:
            return
        assert answer.ok, answer.text

    def requests_seen(self) -> tuple[int, int]:
        """Which process is there, and how many requests came to it."""
        while not self._ready:
            self.look()
            time.sleep(0.01)
        return self._incarnation, requests.get(f"{self.model.base_url}/simulator/state", timeout=10).json()["requests"]

    def _start(self) -> None:
        self._incarnation += 1
        self._started_at = time.monotonic()
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "draftmill.simulator", "serve", *self._options]
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=ENVIRONMENT)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process, self._ready = None, False

    def _tell(self) -> None:
        endpoint = asdict(replace(self.model.endpoint(), incarnation=self._incarnation))
        gone = self._process is None and self._down_until is None
        write_json(self._path, {"incarnation": self._incarnation, "ready": self._ready, "gone": gone, "endpoint": endpoint})
