"""From the end of a job to the end of its task."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from draftmill.jobs.models import JobKey, JobStatus
from draftmill_airflow import errors
from draftmill_airflow.outcome import conclude, event_of_error, event_of_job, result_of
from draftmill_airflow.retry_policy import RETRY_POLICY

KEY = JobKey(campaign="c", task="generate", dataset="d")


def status(state: str, **values: Any) -> JobStatus:
    return JobStatus.model_validate({"key": KEY, "state": state} | values)


def test_a_result_survives_the_way_through_a_trigger() -> None:
    event = event_of_job(status("done", result={"tokens": 5}, log="much\n", progress={"message": "x"}))
    assert conclude(event) == {"tokens": 5}
    assert "log" not in event["job"]


@pytest.mark.parametrize(
    ("job", "kind", "words"),
    [
        (status("failed", exit_code=65, error="bad model"), errors.JobNeedsAPerson, "c/generate/d: bad model"),
        (status("failed", exit_code=75, error="disk full"), errors.JobFailed, "c/generate/d: disk full; the next try continues"),
        (status("failed", exit_code=1), errors.JobFailed, "exit code 1"),
        (status("stopped", exit_code=79), errors.JobFailed, "stopped on the host"),
        (status("lost", error="its process (pid 7) is gone"), errors.JobLost, "pid 7"),
        (status("absent"), errors.JobLost, "the job is absent"),
    ],
)
def test_each_end_has_its_exception(job: JobStatus, kind: type[Exception], words: str) -> None:
    for raising in (lambda: result_of(job), lambda: conclude(event_of_job(job))):
        with pytest.raises(kind) as caught:
            raising()
        assert words in str(caught.value)


@pytest.mark.parametrize("kind", [errors.CodeMissing, errors.HostRefused, errors.PythonMissing, errors.HostSettingsError])
def test_an_error_of_the_watching_comes_back_as_itself(kind: type[Exception]) -> None:
    with pytest.raises(kind, match="why"):
        conclude(event_of_error(kind("why")))


def test_an_error_from_newer_code_is_still_one() -> None:
    with pytest.raises(errors.HostAnswerError, match="why"):
        conclude({"error": {"kind": "SomethingNew", "message": "why"}})


@pytest.mark.parametrize(
    ("error", "delay_s"),
    [(errors.JobLost("x"), 10), (errors.CodeMissing("x"), 5), (errors.HostUnreachable("x"), 60), (errors.JobFailed("x"), None)],
)
def test_how_soon_a_failure_is_tried_again(error: Exception, delay_s: float | None) -> None:
    decision = RETRY_POLICY.evaluate(error, try_number=1, max_tries=4)
    assert (decision.retry_delay.total_seconds() if decision.retry_delay else None) == delay_s


@pytest.mark.parametrize("kind", [errors.HostSettingsError, errors.HostRefused, errors.PythonMissing, errors.JobNeedsAPerson])
def test_what_needs_a_person_is_never_tried_again(kind: type[Exception]) -> None:
    assert issubclass(kind, AirflowFailException)
