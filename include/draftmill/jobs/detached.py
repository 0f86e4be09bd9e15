"""A process that outlives whoever started it, is found again by its folder, and exists at most once.

```
FOLDER/
  process.json     pid, process group, start time and boot id of the last process, its attempt number and its spec
  start.lock       held while somebody starts or stops here
  life.lock        held by the process itself and what it forks, from before its first instruction until the last of them is gone
  log.N            standard output and error of attempt N, mode 0600
  heartbeat.json, result.json    written by the process itself
  asker.json       who was the last to start or attach;   shown.json: how much of the log its reader has seen
```
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

import draftmill
from draftmill.errors import TemporaryError
from draftmill.files import FileLock, read_json, write_json
from draftmill.jobs.identity import Identity
from draftmill.jobs.launcher import Order
from draftmill.jobs.members import Members
from draftmill.jobs.proc import command_line

MARK = "DRAFTMILL_JOB"
"""Environment variable that holds the folder: what the process starts inherits it, wherever it moves to."""

LOGS_KEPT = 5
_POLL_S = 0.05
_LAUNCH_S = 60
_SWEEP_GRACE_S = 10


def code_root() -> Path:
    """What has to be on Python's path for `draftmill`: the folder, or the zipapp, that this code was imported from."""
    return Path(draftmill.__file__).absolute().parent.parent


@dataclass(frozen=True)
class DetachedState:
    """One look at the folder. `result` is only there once the process is gone or about to go; None with `alive` False means lost."""

    identity: Identity | None
    alive: bool
    heartbeat: dict[str, Any] | None
    result: dict[str, Any] | None


class DetachedProcess:
    """The one process of `folder`. Several objects, in several processes, may stand for the same folder at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.heartbeat_path = self.folder / "heartbeat.json"
        self.result_path = self.folder / "result.json"
        self.life_path = self.folder / "life.lock"
        self._identity_path = self.folder / "process.json"

    def identity(self) -> Identity | None:
        """The last process started here, alive or not."""
        value = read_json(self._identity_path)
        return None if value is None else Identity.from_json(value)

    @property
    def pid(self) -> int | None:
        """The pid of the last process started here, alive or not."""
        identity = self.identity()
        return identity.pid if identity else None

    @property
    def log(self) -> Path:
        """The log of the last attempt."""
        identity = self.identity()
        return self.log_of(identity.attempt if identity else 0)

    def log_of(self, attempt: int) -> Path:
        """The log of an attempt, which counts from 1."""
        return self.folder / f"log.{attempt}"

    def alive(self) -> bool:
        """Whether the process runs now."""
        identity = self.identity()
        return identity is not None and identity.alive()

    def read_state(self) -> DetachedState:
        """Identity, liveness, heartbeat and result together."""
        identity = self.identity()
        # Liveness first: a process that is gone by now has written its result by now.
        alive = identity is not None and identity.alive()
        return DetachedState(identity, alive, read_json(self.heartbeat_path), read_json(self.result_path))

    def asker(self) -> str | None:
        """Who was the last to start or attach; None before anybody was."""
        asker: str | None = read_json(self.folder / "asker.json")
        return asker

    def remember_asker(self, asker: str) -> None:
        """From now on the process is `asker`'s. Call it inside `exclusive()`."""
        write_json(self.folder / "asker.json", asker)

    def shown(self, attempt: int) -> int:
        """How many bytes of the attempt's log its reader has seen."""
        value = read_json(self.folder / "shown.json") or {}
        return int(value["offset"]) if value.get("attempt") == attempt else 0

    def remember_shown(self, attempt: int, offset: int) -> None:
        """Keep what the reader has seen. Forgotten where the disk is full: the reader then sees some lines twice."""
        if offset != self.shown(attempt):
            with contextlib.suppress(OSError):
                write_json(self.folder / "shown.json", {"attempt": attempt, "offset": offset})

    @contextlib.contextmanager
    def exclusive(self, timeout_s: float = 120) -> Iterator[None]:
        """Keep all others from starting or stopping here. TemporaryError where somebody else is at it for `timeout_s`."""
        lock = FileLock(self.folder / "start.lock")
        deadline = time.monotonic() + timeout_s
        while not lock.acquire(f"pid {os.getpid()}"):
            if time.monotonic() > deadline:
                raise TemporaryError(f"{self.folder}: {lock.holder()} has been starting or stopping it for {timeout_s:.0f} s; try again")
            time.sleep(_POLL_S)
        try:
            yield
        finally:
            lock.release()

    def start(self, argv: list[str], spec: dict[str, Any], env: dict[str, str] | None = None) -> bool:
        """Start `argv` unless a process of this folder runs. True where it was started, False where one was running.

        `spec` is kept in process.json, so it must hold no secret; `env` is added to this process's environment.
        Returns once `argv` is running. TemporaryError where that fails.
        """
        with self.exclusive():
            return self.start_exclusive(argv, spec, env)

    def start_exclusive(self, argv: list[str], spec: dict[str, Any], env: dict[str, str] | None = None) -> bool:
        """`start`, for a caller inside `exclusive()`."""
        if self.alive():
            return False
        self._sweep()
        life = FileLock(self.life_path)
        deadline = time.monotonic() + _SWEEP_GRACE_S
        while not life.acquire():
            # A starter that was killed half-way may have left a launcher that is just now becoming the process.
            if self.alive():
                return False
            if time.monotonic() > deadline:
                holder = life.holder() or "a process that cannot be found; `fuser -v` on it names the holder"
                raise TemporaryError(f"{life.path} is held by {holder}")
            time.sleep(_POLL_S)
        try:
            self._launch(argv, spec, env or {}, life.fileno())
        finally:
            life.release()
        return True

    def stop(self, grace_s: float) -> list[int]:
        """TERM to the process group, KILL after `grace_s` to all that belongs to it. Returns the pids that survived even that."""
        with self.exclusive(grace_s + 120):
            return self.stop_exclusive(grace_s)

    def stop_exclusive(self, grace_s: float) -> list[int]:
        """`stop`, for a caller inside `exclusive()`."""
        return Members(self.identity(), MARK, str(self.folder)).end(grace_s)

    def _sweep(self) -> None:
        """End what a dead process left behind, and a process whose folder was wiped from under it."""
        survivors = self.stop_exclusive(_SWEEP_GRACE_S)
        if survivors:
            names = ", ".join(f"{pid} ({command_line(pid)})" for pid in survivors)
            raise TemporaryError(f"{self.folder}: processes of the last attempt cannot be killed: {names}; end them, then try again")

    def _launch(self, argv: list[str], spec: dict[str, Any], env: dict[str, str], lock_fd: int) -> None:
        identity = self.identity()
        attempt = identity.attempt + 1 if identity else 1
        self._clear_for(attempt)
        order: Order = {
            "argv": argv,
            "env": {**os.environ, "PYTHONUNBUFFERED": "1", **env, MARK: str(self.folder)},
            "folder": str(self.folder),
            "log": str(self.log_of(attempt)),
            "identity": str(self._identity_path),
            "lock_fd": lock_fd,
            "record": {"attempt": attempt, "spec": spec},
        }
        paths = [str(code_root()), os.environ.get("PYTHONPATH", "")]
        try:
            launcher = subprocess.run(
                [sys.executable, "-m", "draftmill.jobs.launcher"],
                input=orjson.dumps(order),
                capture_output=True,
                timeout=_LAUNCH_S,
                check=False,
                cwd="/",
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                pass_fds=[lock_fd],
            )
        except subprocess.TimeoutExpired:
            raise TemporaryError(
                f"{self.folder}: the process was not running after {_LAUNCH_S} s; the host is overloaded, try again"
            ) from None
        if launcher.returncode or launcher.stdout:
            complaint = (launcher.stdout or launcher.stderr).decode(errors="replace").strip() or f"exit code {launcher.returncode}"
            raise TemporaryError(f"{self.folder}: nothing could be started: {complaint.splitlines()[-1]}")

    def _clear_for(self, attempt: int) -> None:
        """Remove the last attempt's heartbeat and result, and logs older than the last few."""
        self.heartbeat_path.unlink(missing_ok=True)
        self.result_path.unlink(missing_ok=True)
        for path in self.folder.glob("log.*"):
            match = re.fullmatch(r"log\.([0-9]+)", path.name)
            # A log with this attempt's own number is from before process.json was lost.
            if match and (int(match[1]) <= attempt - LOGS_KEPT or int(match[1]) >= attempt):
                path.unlink(missing_ok=True)
