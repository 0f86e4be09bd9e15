"""Which failures are tried again, and how soon. All other failures follow the task's own retries and back-off.

Failures that need a person are AirflowFailExceptions: Airflow never retries those, and never asks a policy.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

RETRY_POLICY = ExceptionRetryPolicy(
    rules=[
        RetryRule(
            exception="draftmill_airflow.errors.JobLost",
            action=RetryAction.RETRY,
            retry_delay=timedelta(seconds=10),
            reason="the job's process is gone; starting it again continues from what is on disk",
        ),
        RetryRule(
            exception="draftmill_airflow.errors.CodeMissing",
            action=RetryAction.RETRY,
            retry_delay=timedelta(seconds=5),
            reason="the code is gone from the host; it is delivered again",
        ),
        RetryRule(
            exception="draftmill_airflow.errors.HostUnreachable",
            action=RetryAction.RETRY,
            retry_delay=timedelta(seconds=60),
            reason="the host cannot be reached; what runs there goes on, and the next try attaches to it",
        ),
    ]
)

RETRIES: dict[str, Any] = {
    # Attaching costs nothing, so there are more tries than a failure of the work itself would deserve: Airflow may fail a
    # deferred task by itself (a trigger that fires before the scheduler has seen the deferring worker's exit, a lost heartbeat).
    "retries": 5,
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=10),
    "retry_policy": RETRY_POLICY,
}
"""Default arguments of every task that talks to a host."""
