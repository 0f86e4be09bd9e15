"""Processes as Linux shows them in /proc: enough to know one again, and to find what belongs to it. See proc_pid_stat(5)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class ProcessStat:
    """One process. `start_ticks` counts clock ticks from boot to its start: with the pid it names one process of one boot."""

    pid: int
    state: str
    ppid: int
    pgid: int
    session: int
    start_ticks: int

    @property
    def dead(self) -> bool:
        """Ended already; at most its entry waits for a parent that never asks (a zombie)."""
        return self.state in "ZXx"


def read_stat(pid: int) -> ProcessStat | None:
    """The process `pid`, or None where there is none."""
    try:
        text = (PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the command's name in brackets and may hold spaces and brackets itself; nothing after it does.
    fields = text[text.rindex(b")") + 2 :].split()
    return ProcessStat(
        pid=pid,
        state=fields[0].decode(),
        ppid=int(fields[1]),
        pgid=int(fields[2]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
    )


def boot_id() -> str:
    """A random id that the kernel draws at each boot."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def living_processes() -> Iterator[ProcessStat]:
    """Every process of this user that has not ended."""
    for entry in os.scandir(PROC):
        if not entry.name.isdigit():
            continue
        try:
            ours = entry.stat().st_uid == os.getuid()
        except FileNotFoundError:
            continue
        stat = read_stat(int(entry.name)) if ours else None
        if stat is not None and not stat.dead:
            yield stat


def started_with(pid: int, variable: str, value: str) -> bool:
    """Whether the process was started with `variable=value` in its environment. False where it cannot be read."""
    try:
        entries = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.fsencode(f"{variable}={value}") in entries


def command_line(pid: int) -> str:
    """What the process runs, for people, cut at 80 characters; empty where it is gone."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    return b" ".join(words).decode(errors="replace")[:80]
