"""Which process it was: enough to tell it from any other, also after its pid was given out again or the host was rebooted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from draftmill.jobs.proc import boot_id, read_stat


@dataclass(frozen=True)
class Identity:
    """process.json: which process it was, and what it was started for. `started_at` is in seconds since the epoch."""

    pid: int
    pgid: int
    start_ticks: int
    boot_id: str
    started_at: float
    attempt: int
    spec: dict[str, Any]

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Identity:
        """From process.json; keys that another version of the code has added are passed over."""
        return cls(**{name: value[name] for name in cls.__dataclass_fields__})

    def alive(self) -> bool:
        """Whether this very process runs: same boot, same pid, same start time, and not a zombie."""
        stat = read_stat(self.pid)
        return stat is not None and not stat.dead and stat.start_ticks == self.start_ticks and self.boot_id == boot_id()
