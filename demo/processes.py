"""Processes that the demo starts in the background, remembers, finds again and stops, each with all that it started.

A process is known by pid and start time, so that a pid given to somebody else is never touched. What it starts carries a mark in its
environment (DRAFTMILL_DEMO_MARK: the demo's folder), by which leftovers are found whatever group they moved to.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

import psutil

from demo.state import Demo
from draftmill.files import read_json, write_json

MARK = "DRAFTMILL_DEMO_MARK"
GRACE_S = 20


class Background:
    """The demo's own background processes, by name."""

    _handles: ClassVar[list[subprocess.Popen[bytes]]] = []
    """Of what this very process started. A handle that is dropped while its process lives draws a warning, and these shall live on."""

    def __init__(self, demo: Demo) -> None:
        self.demo = demo

    def _records(self) -> dict[str, dict[str, float]]:
        return read_json(self.demo.processes) or {}

    def find(self, name: str) -> psutil.Process | None:
        """The process of this name, where it lives."""
        record = self._records().get(name)
        if record is None:
            return None
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(int(record["pid"]))
            if process.create_time() == record["started"] and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None

    def log(self, name: str) -> Path:
        """Where the process's output goes."""
        return self.demo.logs / f"{name}.log"

    def start(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        """Start it in a session of its own, so that neither Ctrl-C nor the end of the terminal reaches it."""
        self.demo.logs.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("ab") as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment, MARK: str(self.demo.root)},
                start_new_session=True,
            )
        self._handles.append(child)
        record = {"pid": child.pid, "started": psutil.Process(child.pid).create_time()}
        write_json(self.demo.processes, self._records() | {name: record})

    def stop(self, names: Iterable[str]) -> None:
        """Stop these processes and their groups together: TERM, and KILL for what is left after the grace period."""
        alive = [process for name in names if (process := self.find(name))]
        members = [member for process in alive for member in (process, *_children(process))]
        for process in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGTERM)
        end(members, GRACE_S)
        self._handles[:] = [handle for handle in self._handles if handle.poll() is None]

    def names(self) -> list[str]:
        """All that were ever started, first started first."""
        return list(self._records())

    def forget(self) -> None:
        """Nothing is running any more."""
        self.demo.processes.unlink(missing_ok=True)


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def end(processes: list[psutil.Process], grace_s: float) -> None:
    """Wait until the processes are gone; kill what is still there after `grace_s` seconds."""
    _, left = psutil.wait_procs(processes, timeout=grace_s)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=10)


def leftovers(demo: Demo) -> list[psutil.Process]:
    """Living processes of this demo: with its mark in their environment, or in a session that one of its processes began.

    The session finds those that overwrote their environment, as programs that set their title do.
    """
    sessions = {int(record["pid"]): record["started"] for record in (read_json(demo.processes) or {}).values()}
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if process.pid in ours or process.status() == psutil.STATUS_ZOMBIE or process.uids().real != os.getuid():
                continue
            began = sessions.get(os.getsid(process.pid))
            if process.environ().get(MARK) == str(demo.root) or (began is not None and process.create_time() >= began):
                found.append(process)
    return found


def stop_leftovers(demo: Demo) -> list[str]:
    """End what still belongs to the demo. Returns a line for each process that could not be ended."""
    left = leftovers(demo)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    end(left, GRACE_S)
    return [_describe(process) for process in leftovers(demo)]


def _describe(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return f"{process.pid} {' '.join(process.cmdline())[:120]}"
    return str(process.pid)
