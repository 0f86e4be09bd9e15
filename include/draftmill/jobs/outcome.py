"""How a step ended: its result, or an exit code and one sentence."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError

from draftmill.errors import DraftmillError, ExitCode
from draftmill.files import NO_SPACE

_LONGEST_SENTENCE = 2000


@dataclass(frozen=True)
class Outcome:
    """`error` is one sentence where `exit_code` is not DONE. `unexpected` is the traceback of a fault that no code foresaw."""

    exit_code: ExitCode
    error: str | None = None
    result: dict[str, Any] | None = None
    unexpected: str | None = None


def sentence(text: str) -> str:
    """`text` on one line, cut to a length that fits a log line."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_SENTENCE else line[:_LONGEST_SENTENCE] + " ..."


def _of_disk(error: OSError) -> Outcome | None:
    if error.errno not in NO_SPACE:
        return None
    where = f" at {error.filename}" if error.filename else ""
    return Outcome(ExitCode.TEMPORARY, f"the disk is full{where} ({os.strerror(error.errno)}); free space, then retry: it continues")


def outcome_of(error: BaseException) -> Outcome:
    """What an error means: the exit code it carries or deserves, and its sentence."""
    if isinstance(error, DraftmillError):
        return Outcome(error.exit_code, sentence(str(error)))
    if isinstance(error, KeyboardInterrupt):
        return Outcome(ExitCode.STOPPED, "interrupted; what was finished is kept and the next start continues")
    if isinstance(error, ValidationError):
        from draftmill.spec.load import describe

        return Outcome(ExitCode.PERMANENT, sentence(f"{error.title}: {describe(error)}"))
    if isinstance(error, MemoryError):
        return Outcome(ExitCode.TEMPORARY, "the host ran out of memory; see what else uses it, then retry: it continues")
    if isinstance(error, OSError) and (full := _of_disk(error)):
        return full
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    if isinstance(error, ModuleNotFoundError):
        text = f"this Python has no module {error.name!r}; run draftmill with the Python that serves the model"
        return Outcome(ExitCode.PERMANENT, text, unexpected=trace)
    return Outcome(ExitCode.TEMPORARY, sentence(f"unexpected {type(error).__name__}: {error}; the log has the traceback"), unexpected=trace)


def conclude(work: Callable[[], dict[str, Any]], stop: threading.Event) -> Outcome:
    """Do `work` and say how it ended; nothing it raises gets past. A fault while stopping counts as stopped: it is the stop's doing."""
    try:
        result = work()
        orjson.dumps(result)  # a result that is no JSON must fail here, where it is reported
    except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - the border of a step
        outcome = outcome_of(error)
        if stop.is_set() and outcome.exit_code is ExitCode.TEMPORARY:
            return Outcome(ExitCode.STOPPED, outcome.error, unexpected=outcome.unexpected)
        return outcome
    return Outcome(ExitCode.DONE, result=result)
