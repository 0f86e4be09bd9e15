"""The processes of one SGLang launch, wherever they went, and their verified end.

A process is ours by its process group or session, by the mark in its environment, by descent, because it was seen among ours before
(pid and start time), or because its output goes to one of our log files. The last two find workers that left the process tree and
overwrote their environment when they set their title, as SGLang's do.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from draftmill.jobs.identity import Identity
from draftmill.jobs.members import Members
from draftmill.jobs.proc import PROC, ProcessStat, boot_id, command_line, read_stat
from draftmill.serving.folder import ProcessRecord, ServerFolder, ServerState

MARK = "DRAFTMILL_SERVER_ID"
"""Environment variable that every process of a launch inherits; its value is drawn anew for each launch."""

_KILL_WAIT_S = 15
_POLL_S = 0.2


def _writes_to(pid: int, logs: str) -> bool:
    """Whether standard output or error of the process is a file below `logs`. People who read one have it open elsewhere."""
    for descriptor in ("1", "2"):
        with contextlib.suppress(OSError):
            if str((PROC / str(pid) / "fd" / descriptor).readlink()).startswith(logs):
                return True
    return False


class ServerMembers(Members):
    """The processes of one launch. Everything needed to find them is in state.json, so a later supervisor can, too."""

    def __init__(self, mark: str, logs: Path, leader: Identity | None, recorded: Iterable[ProcessRecord] = ()) -> None:
        """`logs` is the folder of all server logs of the workspace; `mark` is empty where none is known."""
        super().__init__(leader, MARK, mark or secrets.token_hex(16))
        self._logs = f"{logs.resolve()}{os.sep}"
        self._known.update((record.pid, record.start_ticks) for record in recorded)

    @classmethod
    def of_state(cls, state: ServerState, folder: ServerFolder) -> ServerMembers:
        """The processes that a written state speaks of. After a reboot its pids mean nothing any more and are passed over."""
        if state.boot_id != boot_id():
            return cls("", folder.logs, None)
        leader = leader_identity(state.leader.pid, state.leader.start_ticks) if state.leader else None
        return cls(state.mark, folder.logs, leader, state.processes)

    def _belongs(self, stat: ProcessStat) -> bool:
        return super()._belongs(stat) or _writes_to(stat.pid, self._logs)

    def records(self) -> list[ProcessRecord]:
        """All that live now, as state.json keeps them."""
        return [ProcessRecord(pid=stat.pid, start_ticks=stat.start_ticks) for stat in self.find()]

    def drain(self, leader: int | None, drain_s: float, waiting: Callable[[list[ProcessStat]], None]) -> None:
        """TERM to the launcher alone, which lets requests in flight finish, and wait until all are gone or `drain_s` has passed.

        `waiting` is called at each look, with who is left.
        """
        if leader is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(leader, signal.SIGTERM)
        deadline = time.monotonic() + drain_s
        while (left := self.find()) and time.monotonic() < deadline:
            waiting(left)
            time.sleep(_POLL_S)

    def kill(self) -> list[ProcessStat]:
        """KILL to all, again and again until none is left or the kernel does not let go of them. Returns who survived."""
        deadline = time.monotonic() + _KILL_WAIT_S
        while (left := self.find()) and time.monotonic() < deadline:
            for stat in left:
                _kill_if_same(stat)
            time.sleep(_POLL_S)
        return left


def _kill_if_same(stat: ProcessStat) -> None:
    now = read_stat(stat.pid)
    if now is not None and now.start_ticks == stat.start_ticks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(stat.pid, signal.SIGKILL)


def leader_identity(pid: int, start_ticks: int) -> Identity:
    """The launcher as the jobs room knows a process; it leads its own session and group."""
    return Identity(pid=pid, pgid=pid, start_ticks=start_ticks, boot_id=boot_id(), started_at=0, attempt=0, spec={})


def name_process(pid: int) -> str:
    """`pid 123 of alice (python train.py)`, for people; what cannot be read is left out."""
    owner = ""
    with contextlib.suppress(OSError, KeyError):
        import pwd

        owner = f" of {pwd.getpwuid((PROC / str(pid)).stat().st_uid).pw_name}"
    words = command_line(pid)
    return f"pid {pid}{owner}" + (f" ({words})" if words else "")


def name_processes(pids: Iterable[int]) -> str:
    """Several processes, for people."""
    return ", ".join(map(name_process, pids))
