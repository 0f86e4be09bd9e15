"""Telling of a host that cannot be reached: at once, then once a minute, then that it is back."""

from __future__ import annotations

import time
from typing import Any

from draftmill_airflow.errors import HostUnreachable
from draftmill_airflow.wire import delays

TELL_EVERY_S = 60
ANSWER_ERRORS_S = 900
"""A host that can be reached but cannot run the code (its disk is full, its Python is on a file system that is not mounted) is given
this long before the task fails and is tried again from the start."""


class Outage:
    """The current outage of one host, if there is one. `log` is any logger with `warning` and `info`."""

    def __init__(self, address: str, log: Any) -> None:
        self._address = address
        self._log = log
        self._since: float | None = None
        self._told: float = 0
        self._answers_wrong_since: float | None = None
        self._delays = delays()

    def goes_on(self, error: Exception) -> float:
        """Another attempt failed with `error`; returns the seconds to wait before the next one.

        Raises `error` where the host has been reachable but useless for too long.
        """
        now = time.monotonic()
        self._count_wrong_answers(error, now)
        if self._since is None:
            self._since = now
            self._log.warning("%s; the job goes on there, and this task keeps trying", error)
            self._told = now
        elif now - self._told >= TELL_EVERY_S:
            self._log.warning("%s: no answer for %.0f min (%s); still trying", self._address, (now - self._since) / 60, error)
            self._told = now
        return next(self._delays)

    def _count_wrong_answers(self, error: Exception, now: float) -> None:
        if isinstance(error, HostUnreachable):
            self._answers_wrong_since = None
            return
        self._answers_wrong_since = self._answers_wrong_since or now
        if now - self._answers_wrong_since > ANSWER_ERRORS_S:
            raise error

    def over(self) -> None:
        """The host answered."""
        if self._since is not None:
            self._log.info("%s answers again after %.0f s", self._address, time.monotonic() - self._since)
        self._since = None
        self._answers_wrong_since = None
        self._delays = delays()
