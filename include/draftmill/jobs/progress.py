"""Where progress goes: lines in a log, a bar on a terminal, numbers in the heartbeat."""

from __future__ import annotations

import contextlib
import threading
import time
from datetime import datetime, timezone
from typing import Any, TextIO

from draftmill.jobs.step import ProgressSink

Number = float | int | str | None


class Tee:
    """Hands progress on to several sinks."""

    def __init__(self, *sinks: ProgressSink) -> None:
        self._sinks = sinks

    def __call__(self, message: str, **numbers: Number) -> None:
        """Hand on."""
        for sink in self._sinks:
            sink(message, **numbers)


class LogProgress:
    """Plain lines with a UTC time. What has numbers is written at most every `every_s` seconds; what has none is an event, written always.

    A log that cannot be written (a full disk) never ends the work that it tells of.
    """

    def __init__(self, stream: TextIO, every_s: float = 15) -> None:
        self._stream = stream
        self._every_s = every_s
        self._due = 0.0
        self._lock = threading.Lock()

    def __call__(self, message: str, **numbers: Number) -> None:
        """Write the line if it is due."""
        with self._lock:
            now = time.monotonic()
            if numbers and now < self._due:
                return
            if numbers:
                self._due = now + self._every_s
            stamp = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
            with contextlib.suppress(OSError):
                self._stream.write(f"{stamp} {message}\n")
                self._stream.flush()


class TerminalProgress:
    """A bar on a terminal: `tokens` of `total`. What has no tokens is a line above the bar. Close it when the step has ended."""

    def __init__(self, stream: TextIO, title: str, total: int) -> None:
        from tqdm import tqdm

        form = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} tokens [{elapsed}<{remaining}{postfix}]"
        self._total = total
        self._bar = tqdm(total=total, desc=title, file=stream, unit_scale=True, bar_format=form, mininterval=0.5)
        self._stream = stream
        self._lock = threading.Lock()

    def __call__(self, message: str, **numbers: Number) -> None:
        """Move the bar, or write the line."""
        tokens = numbers.get("tokens")
        with self._lock:
            if not isinstance(tokens, int | float):
                self._bar.write(message, file=self._stream)
                return
            rate = numbers.get("tokens_per_s")
            parts = [f"{rate:,.0f} tokens/s"] if isinstance(rate, int | float) else []
            parts += [f"{numbers[name]} {name.replace('_', ' ')}" for name in ("in_flight", "errors") if numbers.get(name)]
            self._bar.set_postfix_str(", ".join(parts), refresh=False)
            self._bar.n = min(tokens, self._total)
            self._bar.refresh()

    def close(self) -> None:
        """Leave the bar as it is and go to the next line."""
        self._bar.close()


class LastProgress:
    """Keeps the last progress, as the heartbeat tells it: `message`, `at` in seconds since the epoch, and the numbers."""

    def __init__(self) -> None:
        self.value: dict[str, Any] | None = None

    def __call__(self, message: str, **numbers: Number) -> None:
        """Keep it."""
        self.value = {**numbers, "message": message, "at": time.time()}
