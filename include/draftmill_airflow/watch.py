"""Following a job: what to ask next, and which lines of its log and progress a task log gets. Pure; operator and trigger share it."""

from __future__ import annotations

from typing import Any

from draftmill.jobs.models import JobKey, JobStatus, StatusRequest

LINE_CHARACTERS = 2000
"""A longer line is cut in the task log; the log on the host has it whole."""

BURST_BYTES = 4 * 1024 * 1024
BYTES_PER_S = 1024
"""How much of a job's log one task log may take: the burst at once, and this rate for ever."""

MOST_BYTES = 64 * 1024
LEAST_BYTES = 4 * 1024
"""How much of it one answer may carry."""

PROGRESS_S = 60
STALL_S = 600
"""A job with requests in flight and no new token for this long is told of, and again after each such time."""


class LogAllowance:
    """A token bucket over log bytes, so that a job that prints without end cannot fill Airflow's disk."""

    def __init__(self, now: float) -> None:
        self._left = float(BURST_BYTES)
        self._at = now

    def next(self, now: float) -> int:
        """Bytes the next answer may carry. Never none: the end of a log must arrive."""
        self._left = min(BURST_BYTES, self._left + (now - self._at) * BYTES_PER_S)
        self._at = now
        return int(max(LEAST_BYTES, min(MOST_BYTES, self._left)))

    def spend(self, amount: int) -> None:
        """Account for bytes that were printed."""
        self._left -= amount


class JobWatch:
    """One asker's view of one job. `now` is monotonic seconds throughout.

    seen, attempt: bytes of which attempt's log were shown before. The host remembers at least what was seen one question earlier, so
    these only matter to whoever takes over from somebody else, and a restart of that one may repeat nothing but its last lines.
    """

    def __init__(self, workspace: str, key: JobKey, now: float, seen: int = 0, attempt: int | None = None) -> None:
        self.workspace = workspace
        self.key = key
        self._seen = seen
        self._attempt = attempt
        self._last: JobStatus | None = None
        self._allowance = LogAllowance(now)
        self._spoke_at = now
        self._tokens: object = None
        self._moved_at = now
        self._warned_at = now
        self._untold_stall: str | None = None

    @property
    def last(self) -> JobStatus:
        """The last answer. RuntimeError before the first one."""
        if self._last is None:
            raise RuntimeError(f"{self.key}: no answer yet")
        return self._last

    @property
    def seen(self) -> tuple[int, int | None]:
        """Bytes of the log that were shown, and of which attempt."""
        return (self._last.log_offset, self._last.attempt) if self._last else (self._seen, self._attempt)

    @property
    def finished(self) -> bool:
        """Whether the job's process is gone and the last line of its log was seen."""
        return self._last is not None and self._last.state != "running" and not self._last.more

    def request(self, now: float, wait_s: float, quiet_s: float) -> StatusRequest:
        """The next question. The first one takes up the log where the last asker, of this try or an earlier one, put it down."""
        return StatusRequest(
            workspace=self.workspace,
            key=self.key,
            wait_s=wait_s,
            quiet_s=min(quiet_s, wait_s),
            log_offset=self._last.log_offset if self._last else None,
            seen=self._seen,
            attempt=self._last.attempt if self._last else self._attempt,
            max_log_bytes=self._allowance.next(now),
        )

    def see(self, status: JobStatus, now: float) -> list[str]:
        """Take an answer; returns the lines for the task log."""
        lines = []
        if self._last is not None and status.attempt != self._last.attempt:
            lines.append(f"{self.key} was started again on the host; from here on, attempt {status.attempt}")
        self._last = status
        self._allowance.spend(len(status.log))
        if status.log_skipped_bytes:
            lines.append(f"... {status.log_skipped_bytes:,} bytes of the job's log are left out here; the host has them ...")
        lines += [cut(line) for line in status.log.split("\n") if line]
        if lines:
            self._spoke_at = now
        elif now - self._spoke_at >= PROGRESS_S and status.state == "running":
            lines.append(progress_line(status))
            self._spoke_at = now
        return lines + self._stall(status.progress or {}, now)

    def _stall(self, progress: dict[str, Any], now: float) -> list[str]:
        if progress.get("tokens") != self._tokens or not progress.get("in_flight"):
            self._tokens = progress.get("tokens")
            self._moved_at = self._warned_at = now
            self._untold_stall = None
        if now - self._warned_at < STALL_S:
            return []
        first, self._warned_at = self._warned_at == self._moved_at, now
        minutes = (now - self._moved_at) / 60
        line = f"{self.key}: no new token for {minutes:.0f} min with {progress['in_flight']} requests in flight; see the server's log"
        if first:
            self._untold_stall = line
        return [line]

    def take_stall(self) -> str | None:
        """What somebody should be told of a stall that has begun since the last call: once for each stall, however long it goes on."""
        told, self._untold_stall = self._untold_stall, None
        return told


def cut(line: str) -> str:
    """`line`, shortened for a task log."""
    return line if len(line) <= LINE_CHARACTERS else f"{line[:LINE_CHARACTERS]} ... ({len(line):,} characters)"


def progress_line(status: JobStatus) -> str:
    """What a running job is at, in one line, from its heartbeat."""
    progress: dict[str, Any] = dict(status.progress or {})
    message = str(progress.pop("message", "") or "running")
    numbers = ", ".join(f"{name} {_number(value)}" for name, value in progress.items() if value is not None and name != "at")
    return cut(f"{status.key}: {message}" + (f" ({numbers})" if numbers else ""))


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
