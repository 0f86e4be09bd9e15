"""A sign of life beside the work: a thread that tells, every few seconds, that the process runs and how far it is."""

from __future__ import annotations

import threading
import time

from draftmill.files import write_json
from draftmill.jobs.detached import DetachedProcess
from draftmill.jobs.identity import Identity
from draftmill.jobs.progress import LastProgress, Number
from draftmill.jobs.spill import trim_log
from draftmill.jobs.step import ProgressSink

EVERY_S = 3.0
_GAP_S = 0.5
"""New progress is told at once, but no more often than this."""
_JOIN_S = 10


class Heartbeat:
    """Writes heartbeat.json: `at`, `pid`, `attempt` and the last `progress`. A progress sink itself.

    It also asks for a stop where its folder has been wiped or given to another process: nobody could find this process again.
    """

    def __init__(self, process: DetachedProcess, identity: Identity, stop: threading.Event, log: ProgressSink) -> None:
        self._process = process
        self._identity = identity
        self._stop = stop
        self._log = log
        self._complained = False
        self._last = LastProgress()
        self._closed = threading.Event()
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def __call__(self, message: str, **numbers: Number) -> None:
        """Keep the progress for the next beat."""
        self._last(message, **numbers)
        self._news.set()

    @property
    def at_home(self) -> bool:
        """Whether the folder still is this process's."""
        return self._process.identity() == self._identity

    def close(self) -> None:
        """Write the last beat and end the thread."""
        self._closed.set()
        self._news.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        ending = False
        while not ending:
            self._try_beat()
            if not self._closed.wait(_GAP_S):
                self._news.wait(EVERY_S - _GAP_S)
            self._news.clear()
            ending = self._closed.is_set()
        self._try_beat()

    def _try_beat(self) -> None:
        """Beat; a full disk must end neither this thread nor the work, which has its own way of meeting it."""
        try:
            self._beat()
            self._complained = False
        except OSError as error:
            if not self._complained:
                self._log(f"heartbeat cannot be written: {error}")
            self._complained = True

    def _beat(self) -> None:
        if not self.at_home:
            self._stop.set()
            return
        value = {"at": time.time(), "pid": self._identity.pid, "attempt": self._identity.attempt, "progress": self._last.value}
        # For its owner's eyes, like the result and the log: a message may repeat what a library said, and that may be a secret.
        write_json(self._process.heartbeat_path, value, 0o600)
        trim_log(self._process.log_of(self._identity.attempt))
