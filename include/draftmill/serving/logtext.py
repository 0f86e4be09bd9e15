"""A server log as lines and exceptions, without its noise.

Eight schedulers write into one log, so a traceback is interrupted by other lines, and one fault is told many times. An exception is
found by its traceback and ends at the first line that begins with the name of a class; stamped lines in between are passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_TAIL_BYTES = 4 << 20
_HEAD_BYTES = 1 << 20
_STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?: [A-Z]{1,4}\d+)*\]\s*(?:(?:INFO|WARNING|ERROR|CRITICAL)\b:?\s*)?")
_NOISE = re.compile(
    r"Ignore import error|server_args=|(?:Future|User|Deprecation|Runtime)Warning|warnings\.warn|is deprecated|resource_tracker"
    r'|"(?:GET|POST|PUT|HEAD) /|(?:Prefill|Decode) batch[,:]|\d+%\||Completed \||Started server process|Waiting for application'
    r"|Example: sglang|Fail to set RLIMIT|^\W*$"
)
_COMPLAINT = re.compile(
    r"error|exception|fail|fatal|cannot|can't|couldn't|killed|time(?:d )?-?out|abort|watchdog|out of|not enough|no space|exceeded|xid"
    r"|warn\b|exit ?code|sigkill|address already",
    re.IGNORECASE,
)
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(
    r"^(?:\[rank\d+\]:\s*)?"
    r"((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Resources|Failure|Timeout|NotFound)\w*)(?::\s*(.*))?$"
)
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_MESSAGE_LINES = 4


@dataclass(frozen=True)
class LoggedException:
    """One exception as it was logged."""

    name: str
    message: str

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
        """The last `count` lines that are not noise."""
        kept = [line for line in self.lines if not _NOISE.search(line)]
        return kept[-count:]

    def complaints(self) -> list[str]:
        """Lines that complain. Indented ones are source code in tracebacks, whatever words they hold."""
        return [line for line in self.meaningful(len(self.lines)) if not line.startswith((" ", "\t")) and _COMPLAINT.search(line)]

    @cached_property
    def was_ready(self) -> bool:
        """Whether the server said that it was ready."""
        return any("ready to roll" in line for line in self.lines)


def clean_line(line: str) -> str | None:
    """A line without its time stamp; None where it is noise."""
    text = _STAMP.sub("", line).strip()
    return None if _NOISE.search(text) else text


def kv_capacity_in(text: str) -> int | None:
    """Tokens of KV cache as the scheduler logged them at its start; None where it did not."""
    sizes = re.findall(r"max_total_num_tokens=(\d+)", text)
    return int(sizes[-1]) if sizes else None


def read_log(path: Path) -> str:
    """The beginning and the end of a log: the decode log of days is not read whole. Empty where there is none."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
            size = path.stat().st_size
            if size <= _HEAD_BYTES:
                return head.decode(errors="replace")
            stream.seek(max(_HEAD_BYTES, size - _TAIL_BYTES))
            return (head + b"\n" + stream.read(_TAIL_BYTES)).decode(errors="replace")
    except OSError:
        return ""


def parse_log(text: str) -> LogText:
    """Lines and exceptions of a log."""
    raw = text.replace("\r", "\n").split("\n")
    starts = [index for index, line in enumerate(raw) if _TRACEBACK in line]
    found = [exception for start in starts if (exception := _end_of_traceback(raw, start))]
    return LogText([_STAMP.sub("", line) for line in raw], found)


def _end_of_traceback(raw: list[str], start: int) -> LoggedException | None:
    """The exception that ends the traceback which begins at `start`; None where the log breaks off before it."""
    for index in range(start + 1, len(raw)):
        line = raw[index]
        if line.startswith((" ", "\t")) or not line.strip() or (_STAMP.match(line) and _TRACEBACK not in line):
            continue
        match = _EXCEPTION.match(line)
        return LoggedException(match[1], _message(raw, index, match[2] or "")) if match else None
    return None


def _message(raw: list[str], index: int, first: str) -> str:
    """The exception's message: its first line and what belongs to it, up to a stamp, an empty line or another traceback."""
    parts = [first.strip()]
    for line in raw[index + 1 : index + _MESSAGE_LINES]:
        if not line.strip() or _STAMP.match(line) or _TRACEBACK in line or line.startswith(_CHAINED):
            break
        parts.append(line.strip())
    return " ".join(part for part in parts if part)
