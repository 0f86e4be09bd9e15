"""The short process between a starter and a detached process: `python -m draftmill.jobs.launcher`.

It forks once and exits, so that the detached process has no parent of ours: nobody has to reap it, and a starter that lives for days
keeps no zombie. The child makes its own session, writes its own identity, and becomes the command. So the identity file is there
before the command does anything, and it can only hold the pid that really runs.

Standard input: one JSON object (`Order`). Standard output: nothing on success, or one sentence.
It is a program of its own because forking a process that has threads (as a starter may) is unsafe.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, TypedDict

import orjson

from draftmill.files import write_json
from draftmill.jobs.proc import boot_id, read_stat


class Order(TypedDict):
    """What to run. `lock_fd` is an open, locked descriptor that the command inherits; the kernel frees the lock with its last holder."""

    argv: list[str]
    env: dict[str, str]
    folder: str
    log: str
    identity: str
    lock_fd: int
    record: dict[str, Any]


def _become_session_leader(order: Order) -> None:
    os.setsid()
    os.chdir(order["folder"])
    # A starter under nohup or with blocked signals must not hand that on: the job would never see its SIGTERM.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def _redirect(log: str) -> int:
    """Point the standard descriptors away from the starter; give back a close-on-exec descriptor to report failure on."""
    report = os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.fchmod(output, 0o600)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    return report


def _write_identity(order: Order) -> None:
    pid = os.getpid()
    stat = read_stat(pid)
    if stat is None:  # pragma: no cover - /proc is not mounted
        raise OSError("/proc shows no process of this one; it must be mounted")
    identity = {"pid": pid, "pgid": stat.pgid, "start_ticks": stat.start_ticks, "boot_id": boot_id(), "started_at": time.time()}
    write_json(Path(order["identity"]), order["record"] | identity)


def _run(order: Order) -> None:
    """In the child: never returns."""
    report = 1
    try:
        _become_session_leader(order)
        report = _redirect(order["log"])
        _write_identity(order)
        os.set_inheritable(order["lock_fd"], True)
        os.execvpe(order["argv"][0], order["argv"], order["env"])  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(report, f"{order['argv'][0]}: {error}".encode())
    finally:
        os._exit(127)


def main() -> int:
    """Start the command that standard input describes."""
    order: Order = orjson.loads(sys.stdin.buffer.read())
    if os.fork() == 0:
        _run(order)
    return 0


if __name__ == "__main__":
    sys.exit(main())
