"""Who listens on a TCP port, told by the kernel: a socket's inode in /proc/net/tcp is also the name of the descriptor that holds it."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable

from draftmill.jobs.proc import PROC
from draftmill.serving.processes import name_process

_LISTEN = "0A"


def listening_inodes(port: int) -> set[str]:
    """Inodes of all sockets that listen on `port`, on any address, IPv4 or IPv6. See proc_pid_net_tcp(5)."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / table).read_text().splitlines()[1:]
        except FileNotFoundError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    return inodes


def holds_any(pid: int, inodes: set[str]) -> bool:
    """Whether the process has one of these sockets open; False where its descriptors cannot be read."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    with contextlib.suppress(OSError):
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                if str(descriptor.readlink()) in wanted:
                    return True
    return False


def port_owners(port: int, pids: Iterable[int] | None = None) -> list[int]:
    """Pids among `pids` (all visible ones where None) that listen on `port`. Other users' processes may be invisible."""
    inodes = listening_inodes(port)
    if not inodes:
        return []
    candidates = pids if pids is not None else [int(entry.name) for entry in os.scandir(PROC) if entry.name.isdigit()]
    return [pid for pid in candidates if holds_any(pid, inodes)]


def is_listening(port: int) -> bool:
    """Whether anybody listens on `port`."""
    return bool(listening_inodes(port))


def free_port(host: str) -> int:
    """A port that nobody uses now. Somebody may take it before SGLang does; the launch then fails by name and is repeated."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def name_owner(port: int) -> str:
    """Who listens on `port`, for people."""
    owners = port_owners(port)
    return ", ".join(name_process(pid) for pid in owners) if owners else "a process of another user"
