"""An optional notifier, chosen by configuration: any notifier of Airflow or its providers.

    DRAFTMILL_NOTIFIER='{"class": "airflow.providers.slack.notifications.slack_webhook.SlackWebhookNotifier",
                         "kwargs": {"slack_webhook_conn_id": "slack", "text": "{{ dag_run.run_id }}: {{ dag_run.state }}"}}'

It is called when a run has ended, well or not. The page of the run, and its note, hold the totals.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from airflow.sdk import BaseNotifier
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from draftmill.errors import PermanentError
from draftmill.spec.load import describe

VARIABLE = "DRAFTMILL_NOTIFIER"


class NotifierSpec(BaseModel):
    """What the variable holds."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(alias="class", pattern=r"^[A-Za-z_][\w.]*\.[A-Za-z_]\w*$")
    kwargs: dict[str, Any] = Field(default_factory=dict)


def notifier(text: str) -> BaseNotifier:
    """The notifier that `text` describes. PermanentError where it does not describe one."""
    try:
        spec = NotifierSpec.model_validate_json(text)
    except ValidationError as error:
        raise PermanentError(f"{VARIABLE}: {describe(error)}") from None
    try:
        module, _, name = spec.path.rpartition(".")
        made = getattr(importlib.import_module(module), name)(**spec.kwargs)
    except (ImportError, AttributeError, TypeError) as error:
        raise PermanentError(f"{VARIABLE}: {spec.path} cannot be made: {error}") from None
    if not isinstance(made, BaseNotifier):
        raise PermanentError(f"{VARIABLE}: {spec.path} is no notifier of Airflow")
    return made


def callbacks() -> dict[str, Any]:
    """Arguments of the DAG: none where no notifier is configured."""
    text = os.environ.get(VARIABLE)
    if not text:
        return {}
    made = notifier(text)
    return {"on_success_callback": made, "on_failure_callback": made}
