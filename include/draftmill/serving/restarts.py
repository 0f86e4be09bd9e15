"""When a server that ended is started again, and when it is given up."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from draftmill.serving.diagnosis import Diagnosis
from draftmill.spec.server import ServerProfile

_LONGEST_WAIT_S = 120.0


class RestartPolicy:
    """Restarts are bounded in number within a window, and wait longer each time.

    Given up at once: what a person must change, and what fails to load twice in a row for the same cause (loading costs up to half an
    hour of all GPUs).
    """

    def __init__(self, profile: ServerProfile, clock: Callable[[], float] = time.monotonic) -> None:
        self._profile = profile
        self._clock = clock
        self._starts: deque[float] = deque()
        self._failed_to_load: str | None = None
        self._repeated = False

    def was_ready(self) -> None:
        """The server came up: earlier failures to load no longer count."""
        self._failed_to_load = None

    def wait_s(self, diagnosis: Diagnosis, *, loaded: bool) -> float | None:
        """Seconds to wait before the next start, which is counted; None where the server is given up."""
        failure = None if loaded else _failure(diagnosis)
        self._repeated = failure is not None and failure == self._failed_to_load
        if diagnosis.kind == "permanent" or self._repeated:
            return None
        if failure is not None:
            self._failed_to_load = failure
        now = self._clock()
        while self._starts and now - self._starts[0] > self._profile.restart_window_s:
            self._starts.popleft()
        if len(self._starts) >= self._profile.max_restarts:
            return None
        wait = min(self._profile.restart_backoff_s * 2.0 ** len(self._starts), _LONGEST_WAIT_S)
        self._starts.append(now)
        return wait

    def verdict(self, diagnosis: Diagnosis) -> Diagnosis:
        """The diagnosis to give up with: an exception that comes at every load will come at the next one, too."""
        if not (self._repeated and diagnosis.cause == "exception"):
            return diagnosis
        return replace(
            diagnosis, kind="permanent", advice=f"it came twice while loading, so change the profile or the build; {diagnosis.advice}"
        )


def _failure(diagnosis: Diagnosis) -> str:
    """What makes two failures to load the same one."""
    return diagnosis.sentence if diagnosis.cause == "exception" else diagnosis.cause
