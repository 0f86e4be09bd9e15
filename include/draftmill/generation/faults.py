"""What can go wrong with one request, and what is done about each kind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """How a kind of fault is treated.

    tries: attempts of one prompt that may end this way before it is given up. wait_s: pause before the first new attempt; it doubles
    with each. pressure: the server is asked for too much. lost: the connection failed, so the server may be gone.
    """

    tries: int
    wait_s: float = 0.0
    pressure: bool = False
    lost: bool = False


RULES: dict[str, Rule] = {
    "connection": Rule(tries=12, wait_s=0.1, lost=True),
    "pushback": Rule(tries=1_000, wait_s=1.0, pressure=True),
    "server_error": Rule(tries=6, wait_s=0.5),
    "out_of_memory": Rule(tries=8, wait_s=2.0, pressure=True),
    "aborted": Rule(tries=6, wait_s=0.5),
    "deadline": Rule(tries=3),
    "error_body": Rule(tries=6, wait_s=0.5),
    "wrong_count": Rule(tries=6),
    "wrong_prompt": Rule(tries=3),
    "foreign_id": Rule(tries=6),
    "no_ids": Rule(tries=6, wait_s=0.5),
    "unfinished": Rule(tries=6),
    "duplicate_rid": Rule(tries=6),
    "refused": Rule(tries=2),
    "too_long": Rule(tries=3),
}
"""connection: refused, reset, or closed before the whole answer. pushback: 429 or 503. server_error: other 5xx.
out_of_memory, aborted: HTTP 200 with finish reason abort. deadline: no answer although others moved on.
error_body: HTTP 200 with an error, or a body that is no answer.
wrong_count, wrong_prompt, foreign_id, no_ids, unfinished: an answer that contradicts itself.
duplicate_rid, refused, too_long: HTTP 400."""

MAX_WAIT_S = 30.0


class RequestFault(Exception):  # noqa: N818 - an outcome of one request
    """One attempt failed: `kind` is a key of RULES; the message says what the server said."""

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(message or kind)
        self.kind = kind


def pause(kind: str, failures: int) -> float:
    """Seconds to wait before the attempt that follows the `failures`-th failure of this kind."""
    return min(MAX_WAIT_S, RULES[kind].wait_s * 2.0 ** min(failures - 1, 16))
