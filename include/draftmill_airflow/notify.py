"""An optional notifier, chosen by configuration: any notifier of Airflow or its providers.

    DRAFTMILL_NOTIFIER='{"class": "airflow.providers.slack.notifications.slack_webhook.SlackWebhookNotifier",
                         "kwargs": {"slack_webhook_conn_id": "slack", "text": "{{ dag_run.run_id }} {{ dag_run.state }}: {{ reason }}"}}'

It is called when a run has ended, well or not, and when generation stands still; `reason` says what it is. The page of the run, and its
note, hold the totals.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from airflow.sdk import BaseNotifier
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from draftmill.errors import PermanentError
from draftmill.spec.load import describe
from draftmill_airflow.retry_policy import RETRIES

VARIABLE = "DRAFTMILL_NOTIFIER"

NOTIFY_S = 30.0
"""Time limit of a notification that is sent while a job is watched."""


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


async def tell_of_stall(ti: Any, reason: str, log: Any) -> None:
    """Send `reason` through the configured notifier, if there is one; for code that runs in the triggerer.

    Never raises: a notifier that fails, or takes longer than `NOTIFY_S`, is a warning in `log`. ti: the trigger's task instance; None
    where it has none.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return
    try:
        await asyncio.wait_for(_send(text, context_of(ti, reason)), NOTIFY_S)
    except asyncio.TimeoutError:
        log.warning("%s: the notifier has not answered within %.0f s", VARIABLE, NOTIFY_S)
    except Exception as error:  # noqa: BLE001 - a notifier is anybody's code, and the job matters more than what it raises
        log.warning("%s: the notifier failed: %s: %s", VARIABLE, type(error).__name__, error)
    else:
        log.info("%s: the notifier was told", VARIABLE)


async def _send(text: str, context: Any) -> None:
    # In a thread, since to import a provider or to send without asyncio would hold up every trigger of the triggerer.
    made = await asyncio.to_thread(notifier, text)
    if type(made).async_notify is BaseNotifier.async_notify:
        await asyncio.to_thread(made, context)
        return
    made.context = context
    await made


def context_of(ti: Any, reason: str) -> dict[str, Any]:
    """What a notifier's templates can name.

    Airflow gives a trigger no context. This one has what the templates of Airflow's notifiers use of `ti` and `dag_run`, and `reason`,
    which Airflow fills when a run ends.
    """
    names = ("dag_id", "run_id", "task_id", "map_index", "try_number")
    known: dict[str, Any] = {name: getattr(ti, name, None) for name in names}
    url = _log_url(known) if known["dag_id"] else ""
    instance = SimpleNamespace(
        **known, state="deferred", hostname="", max_tries=RETRIES["retries"], log_url=url, mark_success_url=url, duration=None
    )
    run = SimpleNamespace(dag_id=known["dag_id"], run_id=known["run_id"], state="running")
    return {"ti": instance, "task_instance": instance, "dag_run": run, "run_id": known["run_id"], "reason": reason}


def _log_url(known: dict[str, Any]) -> str:
    from airflow.sdk.configuration import conf

    base = str(conf.get("api", "base_url", fallback="http://localhost:8080")).rstrip("/")
    index = "" if known["map_index"] is None or known["map_index"] < 0 else f"/mapped/{known['map_index']}"
    task = f"{known['dag_id']}/runs/{quote(str(known['run_id']))}/tasks/{known['task_id']}{index}"
    return f"{base}/dags/{task}?try_number={known['try_number']}"
