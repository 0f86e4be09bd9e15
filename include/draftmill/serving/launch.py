"""One SGLang process tree: started in a session of its own, found again wherever it goes, ended and verified."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from draftmill.jobs.proc import ProcessStat, read_stat
from draftmill.serving.folder import ProcessRecord
from draftmill.serving.processes import MARK, ServerMembers, leader_identity
from draftmill.serving.progress import LogFollower

LOGS_KEPT = 10

# PR_SET_PDEATHSIG (1, see prctl(2)) survives the exec: a supervisor that is killed takes its server with it, in order.
_EXEC_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)
if os.getppid() != int(sys.argv[1]):
    sys.exit(75)
os.execvp(sys.argv[2], sys.argv[2:])
"""
_REAP_S = 5


class Launch:
    """A running SGLang. `leader` is the launcher process, whose pid is also the number of its group and session."""

    def __init__(self, argv: list[str], env: Mapping[str, str], mark: str, log: Path, folder: Path) -> None:
        """Start `argv`. OSError where it cannot be; `log` gets mode 0600, because SGLang prints its API key."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self.mark = mark
        self.follower = LogFollower(log)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o600)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _EXEC_WITH_PARENT, str(os.getpid()), *argv],
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                env={**env, MARK: mark},
                cwd=folder,
                start_new_session=True,
            )
        finally:
            os.close(descriptor)
        stat = read_stat(self._process.pid)
        ticks = stat.start_ticks if stat else 0
        self.leader = ProcessRecord(pid=self._process.pid, start_ticks=ticks)
        self.members = ServerMembers(mark, log.parent, leader_identity(self._process.pid, ticks))
        self.started_at = time.monotonic()

    def exit_code(self) -> int | None:
        """The launcher's exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def end(self, drain_s: float, waiting: Callable[[list[ProcessStat]], None]) -> list[ProcessStat]:
        """TERM, drain, KILL to everything that is left. Returns who survived, which only the kernel can explain."""
        leader = None if self.exit_code() is not None else self.leader.pid

        def look(left: list[ProcessStat]) -> None:
            self._process.poll()  # reap, so that a drained launcher does not count as living
            waiting(left)

        self.members.drain(leader, drain_s if leader else 0, look)
        survivors = self.members.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_REAP_S)
        return survivors


def drop_old_logs(folder: Path) -> None:
    """Keep the newest logs only."""
    logs = sorted(folder.glob("server-*.log"), key=lambda path: path.stat().st_mtime)
    for path in logs[:-LOGS_KEPT]:
        path.unlink(missing_ok=True)


def signal_name(exit_code: int) -> str:
    """`SIGKILL` for -9; empty for an exit that no signal caused."""
    with contextlib.suppress(ValueError):
        return signal.Signals(-exit_code).name if exit_code < 0 else ""
    return f"signal {-exit_code}"
