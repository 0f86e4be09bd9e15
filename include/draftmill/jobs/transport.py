"""`job start|status|stop`: one JSON request on standard input, one JSON answer on standard output, nothing else there."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import orjson
from pydantic import ValidationError

from draftmill.jobs import control
from draftmill.jobs.models import Message, StartRequest, StatusRequest, StopRequest
from draftmill.jobs.outcome import outcome_of, sentence

USAGE = 64
"""Exit code of a request that cannot be understood (EX_USAGE)."""

_REQUESTS: dict[str, type[Message]] = {"start": StartRequest, "status": StatusRequest, "stop": StopRequest}


@contextlib.contextmanager
def own_stdout() -> Iterator[BinaryIO]:
    """The real standard output for the caller alone; whatever else writes to it, from any library, goes to standard error."""
    sys.stdout.flush()
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(answer, "wb", closefd=False) as stream:
            yield stream
    finally:
        sys.stdout.flush()
        os.dup2(answer, 1)
        os.close(answer)


def _perform(action: str, request: Message, program: Sequence[str] | None) -> Message:
    if isinstance(request, StartRequest):
        return control.start(request, program)
    handler: Callable[[Any], Message] = getattr(control, action)
    return handler(request)


def answer(action: str, text: bytes, program: Sequence[str] | None = None) -> tuple[int, bytes]:
    """Exit code and JSON answer to the request in `text`. Code 0 where it was answered; else the answer is `{"error": sentence}`."""
    try:
        request = _REQUESTS[action].model_validate_json(text)
        return 0, _perform(action, request, program).model_dump_json().encode()
    except ValidationError as error:
        from draftmill.spec.load import describe

        return USAGE, _error(f"job {action}: the request does not fit: {describe(error)}")
    except Exception as error:  # noqa: BLE001 - the asker reads JSON, whatever happens
        outcome = outcome_of(error)
        sys.stderr.write(outcome.unexpected or "")
        return outcome.exit_code, _error(outcome.error or "")


def _error(text: str) -> bytes:
    return orjson.dumps({"error": sentence(text)})


def main(action: str, program: Sequence[str] | None = None) -> int:
    """Answer the request on standard input. Returns the exit code."""
    with own_stdout() as stream:
        code, line = answer(action, sys.stdin.buffer.read(), program)
        if code:
            sys.stderr.write(orjson.loads(line)["error"] + "\n")
        with contextlib.suppress(BrokenPipeError):  # an asker that has hung up
            stream.write(line + b"\n")
            stream.flush()
    return code
