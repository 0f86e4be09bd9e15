"""A server log as lines and exceptions, without its noise.

Eight schedulers write into one log, so a traceback is interrupted by other lines, and one fault is told many times. An exception is
found by its traceback and ends at the first line that begins with the name of a class; what stands between is passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_TAIL_BYTES = 4 << 20
_HEAD_BYTES = 1 << 20
_STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?: [A-Z]{1,4}\d+)*\]\s*(?:(?:INFO|WARNING|ERROR|CRITICAL)\b:?\s*)?")
_NOISE = re.compile(
    r"Ignore import error|server_args=|(?:Future|User|Deprecation|Runtime)Warning|warnings\.warn|is deprecated"
    r'|"(?:GET|POST|PUT|HEAD) /|(?:Prefill|Decode) batch[,:]|\d+%\|| Completed \||^\s*$|Started server process|Waiting for application'
    r"|resource_tracker: There appear to be"
)
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(
    r"^(?:\[rank\d+\]:\s*)?((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Resources|Failure|Timeout)\w*)(?::\s*(.*))?$"
)
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_MESSAGE_LINES = 4


@dataclass(frozen=True)
class LoggedException:
    """One exception as it was logged. `line` is where it stands, `scope` the traceback's frames as text."""

    name: str
    message: str
    line: int
    scope: str = ""

    @property
    def text(self) -> str:
        """`ValueError: no such thing`, on one line."""
        return f"{self.name}: {self.message}" if self.message else self.name


@dataclass(frozen=True)
class LogText:
    """`lines` is the log without time stamps; `exceptions` in order of appearance."""

    lines: list[str]
    exceptions: list[LoggedException]

    def meaningful(self, count: int) -> list[str]:
        """The last lines that are not noise."""
        kept = [line for line in self.lines if not _NOISE.search(line)]
        return kept[-count:]

    @property
    def was_ready(self) -> bool:
        """Whether the server said that it was ready."""
        return any("ready to roll" in line for line in self.lines)


def read_log(path: Path) -> str:
    """The beginning and the end of a log; a decode log of days is not read whole. Empty where there is no log."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
            if size <= _HEAD_BYTES:
                return head.decode(errors="replace")
            stream.seek(max(_HEAD_BYTES, size - _TAIL_BYTES))
            return (head + b"\n" + stream.read(_TAIL_BYTES)).decode(errors="replace")
    except OSError:
        return ""


def parse_log(text: str) -> LogText:
    """Lines and exceptions of a log."""
    raw = text.replace("\r", "\n").split("\n")
    return LogText([_STAMP.sub("", line) for line in raw], _exceptions(raw))


def _exceptions(raw: list[str]) -> list[LoggedException]:
    found = []
    for index, line in enumerate(raw):
        if _TRACEBACK in line:
            exception = _end_of_traceback(raw, index)
            if exception:
                found.append(exception)
    return found


def _end_of_traceback(raw: list[str], start: int) -> LoggedException | None:
    frames: list[str] = []
    for index in range(start + 1, len(raw)):
        line = raw[index]
        if line.startswith((" ", "\t")) or not line.strip():
            frames.append(line)
            continue
        if _TRACEBACK in line and not _STAMP.match(line):
            return None  # another traceback begins: this one was cut off
        match = _EXCEPTION.match(line)
        if match:
            return LoggedException(match[1], _message(raw, index, match[2] or ""), index, "\n".join(frames))
        if _STAMP.match(line) is None and not line.startswith(("[rank", *_CHAINED)):
            return None
    return None


def _message(raw: list[str], index: int, first: str) -> str:
    """The exception's message: its first line and, where that is short or ends open, what follows up to a stamp or an empty line."""
    parts = [first.strip()]
    for line in raw[index + 1 : index + _MESSAGE_LINES]:
        if not line.strip() or _STAMP.match(line) or _TRACEBACK in line or line.startswith(_CHAINED):
            break
        parts.append(line.strip())
    return " ".join(part for part in parts if part)
