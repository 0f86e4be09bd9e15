"""What travels over a connection: one fixed command, a request as JSON on its standard input, an answer as JSON on its standard output.

Nothing but two checked paths and a verb is ever part of the command, so no name, argument or secret passes through a shell, a
process list or a log.
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ValidationError

from draftmill.errors import ExitCode
from draftmill.jobs.models import JobStatus
from draftmill_airflow.errors import CodeMissing, HostAnswerError, JobNeedsAPerson, PythonMissing
from draftmill_airflow.host import Host
from draftmill_airflow.redact import hidden, redact, redact_status

Verb = Literal["start", "status", "stop"]

MAX_ANSWER = 4 * 1024 * 1024
"""Bytes of an answer: its log part is at most 64 KiB, its result a few KiB."""

_CANNOT_EXECUTE, _NOT_FOUND = 126, 127  # POSIX shells
_MISUNDERSTOOD = 64  # draftmill.jobs.transport.USAGE


def command(python: str, zipapp: str, verb: Verb) -> str:
    """The command line that runs `verb` on the host. Both paths are absolute."""
    return f"{shlex.quote(python)} {shlex.quote(zipapp)} job {verb}"


def encode(request: BaseModel) -> bytes:
    """A request as the host reads it."""
    return request.model_dump_json().encode()


def last_line(output: bytes) -> str:
    """The last line that is not empty: before it may stand what a login script of the host prints."""
    lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


class _Complaint(BaseModel):
    """What the host answers instead of a state."""

    error: str


def _words(stdout: bytes, stderr: bytes) -> str:
    try:
        return _Complaint.model_validate_json(last_line(stdout)).error
    except ValidationError:
        return last_line(stderr)[:2000] or last_line(stdout)[:2000] or "no message"


def read_answer(host: Host, exit_status: int, stdout: bytes, stderr: bytes) -> JobStatus:
    """The job's state as the host answered it, without the host's secrets.

    Raises PythonMissing, CodeMissing, JobNeedsAPerson or HostAnswerError, each with the host's own words.
    """
    where = host.address
    if exit_status == ExitCode.DONE:
        try:
            return redact_status(JobStatus.model_validate_json(last_line(stdout)), host.secrets.values())
        except ValidationError:
            said = redact(last_line(stdout)[:200], hidden(host.secrets.values())) or "nothing"
            raise HostAnswerError(f"{where}: the answer of `job` cannot be read; it ends with {said!r}") from None
    words = redact(_words(stdout, stderr), hidden(host.secrets.values()))
    if exit_status in (_CANNOT_EXECUTE, _NOT_FOUND):
        raise PythonMissing(f"{where}: the connection's Python cannot be run ({words}); correct draftmill.python in the connection's extra")
    if "can't open file" in words or "can't find '__main__' module" in words:
        raise CodeMissing(f"{where}: the delivered code is gone ({words}); the next try delivers it again")
    if exit_status in (ExitCode.PERMANENT, _MISUNDERSTOOD):
        raise JobNeedsAPerson(f"{where}: {words}")
    raise HostAnswerError(f"{where}: `job` ended with exit code {exit_status}: {words}")


def delays(first_s: float = 1, most_s: float = 30) -> Iterator[float]:
    """Seconds to wait between attempts to connect: doubling, and spread over the whole interval.

    sshd drops connections at random while more than MaxStartups of them are not yet authenticated, so attempts that failed
    together must not come back together.
    """
    ceiling = first_s
    while True:
        yield random.uniform(first_s / 2, ceiling)  # noqa: S311 - spreads load, keeps no secret
        ceiling = min(ceiling * 2, most_s)
