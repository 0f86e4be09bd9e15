"""From what became of a job to what becomes of its task."""

from __future__ import annotations

from typing import Any

from draftmill.errors import ExitCode
from draftmill.jobs.models import JobStatus
from draftmill_airflow import errors

_HOST_ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        errors.CodeMissing,
        errors.HostAnswerError,
        errors.HostRefused,
        errors.HostSettingsError,
        errors.HostUnreachable,
        errors.JobNeedsAPerson,
        errors.PythonMissing,
    )
}


def event_of_job(status: JobStatus) -> dict[str, Any]:
    """The end of a job as a trigger reports it: small, and without its log."""
    return {"job": status.model_dump(mode="json", exclude={"log", "progress"})}


def event_of_error(error: Exception) -> dict[str, Any]:
    """An error that ended the watching, as a trigger reports it."""
    return {"error": {"kind": type(error).__name__, "message": str(error)}}


def conclude(event: dict[str, Any]) -> dict[str, Any]:
    """The job's result from what a trigger reported. Raises what the retry policy knows."""
    if failure := event.get("error"):
        raise _HOST_ERRORS.get(failure["kind"], errors.HostAnswerError)(failure["message"])
    return result_of(JobStatus.model_validate(event["job"]))


def result_of(status: JobStatus) -> dict[str, Any]:
    """The result of a job that is over.

    Raises JobNeedsAPerson (a person must change something), JobLost, or JobFailed (a retry will do).
    """
    reason = status.error or f"exit code {status.exit_code}"
    if status.state == "done":
        return status.result or {}
    if status.state == "failed" and status.exit_code == ExitCode.PERMANENT:
        raise errors.JobNeedsAPerson(f"{status.key}: {reason}")
    if status.state == "failed":
        raise errors.JobFailed(f"{status.key}: {reason}; the next try continues from what is on disk")
    if status.state == "stopped":
        raise errors.JobFailed(f"{status.key}: the job was stopped on the host; what was finished is kept and the next try continues")
    raise errors.JobLost(
        f"{status.key}: the job is {status.state} ({status.error or 'its process left no result: killed, rebooted or its folder wiped'}); "
        "the next try starts it again from what is on disk"
    )
