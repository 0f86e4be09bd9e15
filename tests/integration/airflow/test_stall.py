"""Generation that stands still: a real job over a real sshd, the trigger that watches it, and a notifier."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseNotifier

from draftmill_airflow import trigger, watch
from draftmill_airflow.host import Host
from draftmill_airflow.notify import VARIABLE
from draftmill_airflow.outcome import conclude
from tests.integration.airflow.conftest import order_for
from tests.integration.airflow.test_trigger import event_of, started
from tests.integration.rehearsal import tell

TOLD: list[str] = []


class Recorder(BaseNotifier):
    """Keeps what it is told, and fails afterwards: the watching must not care."""

    async def async_notify(self, context: Any) -> None:
        TOLD.append(context["reason"])
        raise OSError("after it was told")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds without a token are a stall."""
    monkeypatch.setattr(watch, "STALL_S", 2)
    monkeypatch.setattr(trigger, "WAIT_S", 0.5)
    monkeypatch.setattr(trigger, "QUIET_S", 0.2)
    monkeypatch.setenv(VARIABLE, json.dumps({"class": f"{__name__}.Recorder"}))
    TOLD.clear()


async def test_a_stall_is_told_once_and_the_job_is_watched_to_its_end(host: Host, quick: None, workspace: Path) -> None:
    tell(workspace, "generate", "alpha", do="stall", seconds=8)
    event = await asyncio.wait_for(event_of(started(order_for())), 60)
    assert conclude(event)["completion_tokens"] == 100
    assert TOLD == ["test/generate/alpha: no new token for 0 min with 3 requests in flight; see the server's log"]


async def test_a_job_that_moves_is_nobodys_news(host: Host, quick: None) -> None:
    event = await asyncio.wait_for(event_of(started(order_for(budget_tokens=400, expected_tokens=100))), 60)
    assert conclude(event)["completion_tokens"] == 400
    assert TOLD == []
