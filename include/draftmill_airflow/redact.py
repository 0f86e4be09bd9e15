"""Taking a host's secrets out of what it says.

Airflow masks secrets in task logs, but not where an executor repeats a task's log on its own output, nor in XCom. So they are taken
out where an answer arrives, before anything else sees it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from draftmill.jobs.models import JobStatus

Value = TypeVar("Value")

LEAST_CHARACTERS = 5
"""A shorter secret would take pieces out of ordinary words. Airflow draws the same line."""

MASK = "***"


def hidden(secrets: Iterable[str]) -> list[str]:
    """What to take out, longest first: each secret, and each line of one that has several, since logs are told line by line."""
    parts = {part.strip() for secret in secrets for part in (secret, *secret.splitlines())}
    return sorted((part for part in parts if len(part) >= LEAST_CHARACTERS), key=len, reverse=True)


def redact(value: Value, parts: list[str]) -> Value:
    """`value`, JSON-like, with all parts masked in its texts, keys included."""
    if isinstance(value, str):
        for part in parts:
            value = value.replace(part, MASK)  # type: ignore[assignment]  # str in, str out
        return value
    if isinstance(value, dict):
        return {redact(key, parts): redact(entry, parts) for key, entry in value.items()}  # type: ignore[return-value]
    if isinstance(value, list):
        return [redact(entry, parts) for entry in value]  # type: ignore[return-value]
    return value


def redact_status(status: JobStatus, secrets: Iterable[str]) -> JobStatus:
    """A job's state with all secrets masked in its log, error, result and progress."""
    parts = hidden(secrets)
    if not parts:
        return status
    return status.model_copy(update={name: redact(getattr(status, name), parts) for name in ("log", "error", "result", "progress")})
