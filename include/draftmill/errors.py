"""Errors that end a step, and the exit codes that say what to do next.

An error message is one sentence: what is wrong, where, and what to do. It is shown to a person as it is, without a traceback.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a step or job ended. The numbers follow sysexits.h where it has a word for it."""

    DONE = 0
    PERMANENT = 65
    """A person must change something: a retry would fail in the same way (EX_DATAERR)."""
    TEMPORARY = 75
    """A retry will do: it resumes from what is on disk (EX_TEMPFAIL)."""
    STOPPED = 79
    """Stopped on request; what was finished is kept, and a new start continues."""


class DraftmillError(Exception):
    """A failure with a sentence for a person. Subclasses say whether a retry helps."""

    exit_code: ExitCode = ExitCode.PERMANENT


class PermanentError(DraftmillError):
    """Something a person must change: a wrong parameter, a missing file, a model that does not fit."""

    exit_code = ExitCode.PERMANENT


class TemporaryError(DraftmillError):
    """Something a retry will get past: a server that died, a full disk after space was freed, a busy port."""

    exit_code = ExitCode.TEMPORARY


class StoppedError(DraftmillError):
    """The step was asked to stop (SIGTERM, `job stop`) and did so in order."""

    exit_code = ExitCode.STOPPED
