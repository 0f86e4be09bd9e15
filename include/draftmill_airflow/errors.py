"""How a host, its connection or a job can fail, told apart so that a retry policy can choose by exception.

Every message is one sentence: what is wrong, where, and what to do.
"""

from __future__ import annotations

from airflow.sdk.exceptions import AirflowException, AirflowFailException


class HostSettingsError(AirflowFailException):
    """The Airflow connection does not say what is needed, or says something unsafe. A person must change it."""


class HostRefused(AirflowFailException):
    """The host was reached and is not to be used as it is: wrong host key, or it does not let us in."""


class PythonMissing(AirflowFailException):
    """The connection's Python is not on the host."""


class HostUnreachable(AirflowException):
    """No connection, or a connection that was lost. Whatever runs on the host goes on."""


class CodeMissing(AirflowException):
    """The delivered code is gone from the host. A retry delivers it again."""


class HostAnswerError(AirflowException):
    """The host ran our code and it answered an error that a retry may get past, or something that is no answer."""


class JobFailed(AirflowException):
    """The job ended with an error that a retry may get past; it resumes from what is on disk."""


class JobLost(AirflowException):
    """The job's process is gone and left no result: killed, rebooted, or its folder wiped. A retry starts it again."""


class JobNeedsAPerson(AirflowFailException):
    """The job ended with an error that would come back in the same way."""
