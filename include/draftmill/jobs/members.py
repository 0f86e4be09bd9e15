"""All processes that belong to a detached process, and their end.

A process belongs to it by its process group, by its session, by the mark in its environment, or by descent from one that does. The
mark finds what made a session of its own; the session finds what overwrote its environment (programs that set their title do).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from draftmill.jobs.identity import Identity
from draftmill.jobs.proc import ProcessStat, boot_id, living_processes, read_stat, started_with

ORPHAN_GRACE_S = 5
"""Once the leader is gone, nobody tells the others to end in order: they get at most this long."""
_KILL_WAIT_S = 5
_POLL_S = 0.05
_LONGEST_PAUSE_S = 0.5


def _send(stat: ProcessStat, number: signal.Signals) -> None:
    """Signal the process if it still is the one that was seen."""
    now = read_stat(stat.pid)
    if now is not None and now.start_ticks == stat.start_ticks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(stat.pid, number)


class Members:
    """The processes of one detached process. `leader` is None where its record is gone; the mark alone finds them then."""

    def __init__(self, leader: Identity | None, variable: str, value: str) -> None:
        self._leader = leader if leader is not None and leader.boot_id == boot_id() else None
        self._group = self._leader.pgid if self._leader else None
        self._variable = variable
        self._value = value
        self._known: set[tuple[int, int]] = set()

    def find(self) -> list[ProcessStat]:
        """All that live now, this process excepted. What was found once is known again even where its parent is gone since."""
        table = {stat.pid: stat for stat in living_processes() if stat.pid != os.getpid()}
        found = {pid for pid, stat in table.items() if self._belongs(stat)}
        grown = True
        while grown:
            children = {pid for pid, stat in table.items() if stat.ppid in found and pid not in found}
            found |= children
            grown = bool(children)
        members = [table[pid] for pid in sorted(found)]
        self._known.update((stat.pid, stat.start_ticks) for stat in members)
        return members

    def _belongs(self, stat: ProcessStat) -> bool:
        if (stat.pid, stat.start_ticks) in self._known:
            return True
        return self._in_session(stat) or started_with(stat.pid, self._variable, self._value)

    def _in_session(self, stat: ProcessStat) -> bool:
        leader = self._leader
        if leader is None or leader.pid not in (stat.session, stat.pgid):
            return False
        # The kernel gives a pid out again once no session and no group bears its number; such a newcomer leads a foreign session.
        head = read_stat(leader.pid)
        return (head is None or head.start_ticks == leader.start_ticks) and stat.start_ticks >= leader.start_ticks

    def _leader_lives(self, members: list[ProcessStat]) -> bool:
        leader = self._leader
        return leader is not None and any(stat.pid == leader.pid for stat in members)

    def end(self, grace_s: float) -> list[int]:
        """TERM to the group, wait at most `grace_s`, KILL to every member. Returns the pids that live on, which is a kernel's matter."""
        members = self.find()
        # While the leader lives, the groups that it made are its own to end in order.
        led = self._leader_lives(members)
        self._terminate([stat for stat in members if not led or stat.pgid == self._group])
        members = self._wait(grace_s, led)
        deadline = time.monotonic() + _KILL_WAIT_S
        while members and time.monotonic() < deadline:
            for stat in members:
                _send(stat, signal.SIGKILL)
            time.sleep(_POLL_S)
            members = self.find()
        return [stat.pid for stat in members]

    def _wait(self, grace_s: float, led: bool) -> list[ProcessStat]:
        """Who is left when all are gone, the grace has passed, or the dead leader's orphans have had theirs."""
        deadline = time.monotonic() + (grace_s if led else min(grace_s, ORPHAN_GRACE_S))
        pause = _POLL_S
        while (members := self.find()) and time.monotonic() < deadline:
            if led and not self._leader_lives(members):
                led = False
                self._terminate(members)
                deadline = min(deadline, time.monotonic() + ORPHAN_GRACE_S)
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)
        return members

    def _terminate(self, members: list[ProcessStat]) -> None:
        for stat in members:
            _send(stat, signal.SIGTERM)
