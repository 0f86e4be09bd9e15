"""The notifier: chosen by configuration, called at the end of a run and when generation stands still, and never in the way."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseNotifier

from draftmill.errors import PermanentError
from draftmill_airflow import notify
from draftmill_airflow.notify import VARIABLE, callbacks, notifier, tell_of_stall

TI = SimpleNamespace(dag_id="generate_drafter_data", run_id="manual__2026-12-01T00:00:00+00:00", task_id="dataset.generate", map_index=2)
TI.try_number = 1
sent: list[tuple[str, bool]] = []
"""What was sent, and whether by the thread of the tests, which is that of the event loop."""


class Recorder(BaseNotifier):
    """Sends without asyncio, as most notifiers of providers do."""

    template_fields = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:
        sent.append((self.text, threading.current_thread() is threading.main_thread()))


class AsyncRecorder(Recorder):
    """Sends with asyncio."""

    async def async_notify(self, context: Any) -> None:
        await asyncio.sleep(0)
        self.notify(context)


class Failing(BaseNotifier):
    """Cannot send."""

    def notify(self, context: Any) -> None:
        raise OSError("the door is shut")


class Endless(BaseNotifier):
    """Never comes to an end."""

    async def async_notify(self, context: Any) -> None:
        await asyncio.Event().wait()


RECORDER = f"{__name__}.Recorder"


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    sent.clear()


def configure(monkeypatch: pytest.MonkeyPatch, name: str, **kwargs: Any) -> None:
    monkeypatch.setenv(VARIABLE, json.dumps({"class": f"{__name__}.{name}", "kwargs": kwargs}))


def test_no_notifier_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert callbacks() == {}


def test_a_notifier_by_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, json.dumps({"class": RECORDER, "kwargs": {"text": "hello"}}))
    made = callbacks()
    assert set(made) == {"on_success_callback", "on_failure_callback"}
    assert made["on_failure_callback"].text == "hello"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "DRAFTMILL_NOTIFIER: "),
        ('{"class": "nodots"}', "class"),
        ('{"class": "no.such.Thing"}', "no.such.Thing cannot be made"),
        ('{"class": "json.JSONDecoder"}', "is no notifier"),
        (json.dumps({"class": RECORDER}), "cannot be made"),
    ],
)
def test_a_wrong_notifier_is_refused_in_a_sentence(text: str, words: str) -> None:
    with pytest.raises(PermanentError) as caught:
        notifier(text)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["Recorder", "AsyncRecorder"])
async def test_a_stall_is_told_with_what_the_templates_of_a_run_can_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    text = "{{ dag_run.run_id }} {{ dag_run.state }}: {{ reason }} ({{ ti.task_id }}, try {{ ti.try_number }} of {{ ti.max_tries + 1 }})"
    configure(monkeypatch, name, text=text)
    with caplog.at_level(logging.INFO):
        await tell_of_stall(TI, "it stands still", logging.getLogger("job"))
    in_main_thread = name == "AsyncRecorder"
    assert sent == [(f"{TI.run_id} running: it stands still (dataset.generate, try 1 of 6)", in_main_thread)]
    assert "the notifier was told" in caplog.text


async def test_the_link_leads_to_the_log_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, "Recorder", text="{{ ti.log_url }}")
    await tell_of_stall(TI, "", logging.getLogger("job"))
    path = "/dags/generate_drafter_data/runs/manual__2026-12-01T00%3A00%3A00%2B00%3A00/tasks/dataset.generate/mapped/2?try_number=1"
    assert sent[0][0].endswith(path)


async def test_a_trigger_without_a_task_instance_can_tell_too(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, "Recorder", text="{{ reason }}{{ ti.log_url }}")
    await tell_of_stall(None, "it stands still", logging.getLogger("job"))
    assert sent[0][0] == "it stands still"


async def test_airflows_own_notifier_renders_its_templates(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Everything but the mail server is real; that nothing listens there is the last thing that can go wrong."""
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps({"conn_type": "smtp", "host": "127.0.0.1", "port": 9}))
    monkeypatch.setenv(
        VARIABLE,
        json.dumps(
            {"class": "airflow.providers.smtp.notifications.smtp.SmtpNotifier", "kwargs": {"to": "me@example.org", "from_email": "a@b.c"}}
        ),
    )
    await tell_of_stall(TI, "it stands still", logging.getLogger("job"))
    assert "the notifier failed" in caplog.text
    assert "UndefinedError" not in caplog.text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Failing", "the notifier failed: OSError: the door is shut"),
        ("Endless", "the notifier has not answered within 0 s"),
        ("Nowhere", "the notifier failed: PermanentError: DRAFTMILL_NOTIFIER: "),
    ],
)
async def test_a_notifier_that_fails_is_a_warning_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, words: str
) -> None:
    monkeypatch.setattr(notify, "NOTIFY_S", 0.2)
    configure(monkeypatch, name)
    await tell_of_stall(TI, "it stands still", logging.getLogger("job"))
    assert words in caplog.text


async def test_a_user_action_ends_a_notification(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trigger is cancelled through whatever it waits for; were that kept back here, the job would not be stopped."""
    configure(monkeypatch, "Endless")
    task = asyncio.create_task(tell_of_stall(TI, "it stands still", logging.getLogger("job")))
    await asyncio.sleep(0.1)
    task.cancel("__airflow_user_action__")
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    assert cancelled.value.args == ("__airflow_user_action__",)


async def test_without_a_notifier_nothing_happens(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with caplog.at_level(logging.DEBUG):
        await tell_of_stall(TI, "it stands still", logging.getLogger("job"))
    assert caplog.text == ""
