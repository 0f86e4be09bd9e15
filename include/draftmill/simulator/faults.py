"""Faults on request: what goes wrong, when, for how many requests or how long.

Faults of one request change what is answered to it. Faults of state change the server until they are over. As text, for the
command line: `KIND`, or `KIND:key=value,key=value`, for example `abort:after=10,count=3` or `slow:at_s=60,for_s=30,value=5`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from draftmill.errors import PermanentError

REQUEST_FAULTS: dict[str, str] = {
    "abort": "HTTP 200 with finish reason abort",
    "out_of_memory": "HTTP 200 with finish reason abort, as when the cache is too small",
    "error_body": "HTTP 200 with an error object instead of an answer",
    "null_finish": "finish_reason null, as older builds send",
    "plain_finish": "finish_reason as plain text, as older builds send",
    "old_layout": "output_ids inside meta_info, as older builds send",
    "prompt_tail": "output_ids begin with the last `value` ids of the prompt (default 3)",
    "wrong_count": "completion_tokens differs from the number of ids by `value` (default 1)",
    "foreign_id": "one output id outside the vocabulary",
    "status": "HTTP status `value` (default 500) instead of an answer, at once",
    "reset": "the connection is reset instead of the answer",
    "cut": "the connection is closed half-way through the body",
    "hang": "the request is never answered; others are",
}

STATE_FAULTS: dict[str, str] = {
    "slow": "every step takes `value` times as long (default 4)",
    "rate_collapse": "every step takes `value` times as long (default 100)",
    "silent": "health answers 200 and nothing is generated any more",
    "scheduler_dead": "HTTP answers, health is 503, nothing is generated any more",
    "crash": "all connections are reset and the port is closed; the server is back after `value` seconds (default 5; -1: never)",
    "other_model": "another model answers behind the port, called `value` (default other/model)",
    "queue_full": "every new request gets 503",
    "keep_alive": "idle connections are closed after `value` seconds of real time (default 1)",
}

DEFAULT_VALUE: dict[str, float | str] = {
    "prompt_tail": 3,
    "wrong_count": 1,
    "status": 500,
    "slow": 4,
    "rate_collapse": 100,
    "crash": 5,
    "other_model": "other/model",
    "keep_alive": 1,
}


@dataclass(frozen=True)
class Fault:
    """One fault. Times are virtual seconds since the server first started, counts are of /generate requests.

    after: it begins once this many requests have come in since it was asked for.
    at_s: it begins at this time (both given: whichever is later).
    count, share: request faults only: how many requests it hits (None: no limit), and which share of them, drawn by `seed`.
    for_s: state faults only: how long it lasts; None until it is cleared.
    value: see the tables above.
    """

    kind: str
    after: int = 0
    at_s: float = 0.0
    count: int | None = 1
    share: float = 1.0
    for_s: float | None = None
    value: float | str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in REQUEST_FAULTS and self.kind not in STATE_FAULTS:
            raise PermanentError(f"fault: {self.kind!r} is unknown; known: {', '.join([*REQUEST_FAULTS, *STATE_FAULTS])}")

    @property
    def of_request(self) -> bool:
        """Whether it changes single requests, not the server."""
        return self.kind in REQUEST_FAULTS

    @property
    def setting(self) -> float | str:
        """`value`, or the kind's default; 0 where the kind has none."""
        return DEFAULT_VALUE.get(self.kind, 0) if self.value is None else self.value

    @property
    def number(self) -> float:
        """`setting` as a number; PermanentError where it is none."""
        try:
            return float(self.setting)
        except ValueError:
            raise PermanentError(f"fault {self.kind}: value: {self.setting!r} is not a number") from None

    def chosen(self, ordinal: int) -> bool:
        """Whether the request with this ordinal is in the fault's share."""
        if self.share >= 1:
            return True
        digest = hashlib.blake2b(f"{self.seed}/{self.kind}/{ordinal}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") < self.share * 2**64

    @classmethod
    def from_json(cls, value: Any) -> Fault:
        """A fault from a JSON object; PermanentError where a key is unknown."""
        known = {entry.name for entry in fields(cls)}
        if not isinstance(value, dict) or "kind" not in value or set(value) - known:
            raise PermanentError(f"fault: {value!r} must be an object with 'kind' and any of {', '.join(sorted(known))}")
        return cls(**value)

    @classmethod
    def parse(cls, text: str) -> Fault:
        """A fault from its text form."""
        kind, _, rest = text.partition(":")
        return cls.from_json({"kind": kind} | dict(_pair(text, part) for part in rest.split(",") if part))


def _pair(text: str, part: str) -> tuple[str, Any]:
    key, equals, value = part.partition("=")
    if not equals:
        raise PermanentError(f"fault {text!r}: {part!r} must be key=value")
    if key in ("after", "count", "seed"):
        convert: Any = int
    elif key in ("at_s", "for_s", "share"):
        convert = float
    else:
        convert = _number_or_text
    try:
        return key, convert(value)
    except ValueError:
        raise PermanentError(f"fault {text!r}: {key}: {value!r} is not a number") from None


def _number_or_text(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


@dataclass
class _Planned:
    fault: Fault
    first_ordinal: int
    hits: int = 0
    began: bool = False
    ends_s: float | None = None


@dataclass
class Changes:
    """What a look at the schedule brought: state faults that begin now, and those that are over."""

    begun: list[Fault] = field(default_factory=list)
    over: list[Fault] = field(default_factory=list)


class Schedule:
    """All faults asked for, and which of them are at work."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self.requests = 0
        self._planned: list[_Planned] = []
        self.add(faults)

    def add(self, faults: Iterable[Fault]) -> None:
        """Ask for more faults; `after` counts from now."""
        self._planned += [_Planned(fault, self.requests + fault.after) for fault in faults]

    def clear(self) -> list[Fault]:
        """Forget all faults, and return the state faults that were at work."""
        active = [planned.fault for planned in self._planned if planned.began and not planned.fault.of_request]
        self._planned = []
        return active

    def for_request(self, now_s: float) -> Fault | None:
        """Count a request that came in at `now_s`, and return the fault that hits it."""
        ordinal = self.requests
        self.requests += 1
        for planned in self._planned:
            fault = planned.fault
            if not fault.of_request or ordinal < planned.first_ordinal or now_s < fault.at_s:
                continue
            if (fault.count is None or planned.hits < fault.count) and fault.chosen(ordinal):
                planned.hits += 1
                return fault
        return None

    def changes(self, now_s: float) -> Changes:
        """State faults that begin or end by `now_s`; each is told once."""
        changes = Changes()
        for planned in list(self._planned):
            fault = planned.fault
            if fault.of_request:
                continue
            if not planned.began and self.requests >= planned.first_ordinal and now_s >= fault.at_s:
                planned.began = True
                planned.ends_s = None if fault.for_s is None else now_s + fault.for_s
                changes.begun.append(fault)
            if planned.ends_s is not None and now_s >= planned.ends_s:
                self._planned.remove(planned)
                changes.over.append(fault)
        return changes

    def next_change(self, now_s: float) -> float | None:
        """The next virtual time after `now_s` at which a state fault begins or ends by the clock alone."""
        times = [planned.ends_s for planned in self._planned if planned.began and planned.ends_s is not None]
        times += [planned.fault.at_s for planned in self._planned if not planned.began and not planned.fault.of_request]
        return min((time for time in times if time > now_s), default=None)
