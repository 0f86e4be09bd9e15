"""When a server that ended is started again, and when it is given up."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

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

    def was_ready(self) -> None:
        """The server came up: earlier failures to load no longer count."""
        self._failed_to_load = None

    def wait_s(self, diagnosis: Diagnosis, *, loaded: bool) -> float | None:
        """Seconds to wait before the next start, which is counted; None where the server is given up."""
        if diagnosis.kind == "permanent" or (not loaded and diagnosis.cause == self._failed_to_load):
            return None
        if not loaded:
            self._failed_to_load = diagnosis.cause
        now = self._clock()
        while self._starts and now - self._starts[0] > self._profile.restart_window_s:
            self._starts.popleft()
        if len(self._starts) >= self._profile.max_restarts:
            return None
        wait = min(self._profile.restart_backoff_s * 2.0 ** len(self._starts), _LONGEST_WAIT_S)
        self._starts.append(now)
        return wait
