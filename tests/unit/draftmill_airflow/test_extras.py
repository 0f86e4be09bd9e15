"""Links, the note of a run, and metrics."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from draftmill_airflow import metrics
from draftmill_airflow.links import CampaignFolderLink, JournalLink, sftp_url
from draftmill_airflow.order import Order
from draftmill_airflow.run_note import note_of
from draftmill_airflow.task_docs import TASK_DOCS
from tests.plans import make_plan


def test_links_lead_to_folder_and_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"host_key": "ssh-ed25519 AAAA", "draftmill": {"python": "/p", "workspace": "~/draftmill"}}
    monkeypatch.setenv("AIRFLOW_CONN_GPU", json.dumps({"conn_type": "ssh", "host": "gpu1", "login": "me", "port": 2222, "extra": extra}))
    order = Order(conn_id="gpu", plan=make_plan())
    task: Any = SimpleNamespace(order=order.model_dump(mode="json"), dataset="alpha")
    key: Any = None
    assert CampaignFolderLink().get_link(task, ti_key=key) == "sftp://me@gpu1:2222/~/draftmill/campaigns/test"
    assert JournalLink().get_link(task, ti_key=key) == "sftp://me@gpu1:2222/~/draftmill/campaigns/test/journal/alpha.jsonl"
    task.dataset = None
    assert JournalLink().get_link(task, ti_key=key) == ""


@pytest.mark.parametrize("order", [None, {"plan": {}}, Order(conn_id="undefined", plan=make_plan()).model_dump(mode="json")])
def test_no_link_where_the_order_or_the_connection_is_unusable(order: object) -> None:
    task: Any = SimpleNamespace(order=order, dataset="alpha")
    assert CampaignFolderLink().get_link(task, ti_key=None) == ""  # type: ignore[arg-type]


def test_an_absolute_path_in_a_link() -> None:
    assert sftp_url("gpu1", "/data/a b") == "sftp://gpu1/data/a%20b"


def test_the_note_of_a_run() -> None:
    row = {"data set": "alpha", "tokens": 1200, "budget": 1000, "outcome": "budget_reached"}
    assert (
        note_of({"headline": "draftmill: 1,200 tokens", "totals": [row]})
        == "draftmill: 1,200 tokens\n\n- alpha: 1,200 of 1,000 tokens, budget_reached"
    )
    assert note_of(None) is None
    assert note_of({}) is None


def test_only_new_tokens_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, float]] = []
    monkeypatch.setattr(metrics, "incr", lambda name, count, tags: sent.append((name, count)))
    monkeypatch.setattr(metrics, "gauge", lambda name, value, tags: sent.append((name, value)))
    metrics.count_result("generate", {"dataset": "alpha", "new_tokens": 50, "new_responses": 2, "tokens_per_s": 7.5})
    metrics.count_result("generate", {"dataset": "beta", "new_tokens": 0, "new_responses": 0, "tokens_per_s": 0.0})
    metrics.count_result("merge", {"rows": 5})
    assert sent == [
        ("draftmill.tokens", 50),
        ("draftmill.responses", 2),
        ("draftmill.tokens_per_s", 7.5),
        ("draftmill.tokens", 0),
        ("draftmill.responses", 0),
    ]


def test_the_rate_of_a_running_job_is_a_gauge(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.observability import stats

    sent: dict[str, float] = {}
    monkeypatch.setattr(stats, "gauge", lambda name, value, tags: sent.update({name: value}))
    metrics.gauge_progress("alpha", {"tokens_per_s": 7.5, "in_flight": 3, "message": "at work"})
    metrics.gauge_progress(None, None)
    assert sent == {"draftmill.running.tokens_per_s": 7.5, "draftmill.running.in_flight": 3}


def test_every_verb_has_its_docs() -> None:
    from draftmill.jobs.step import STEPS

    assert set(TASK_DOCS) == set(STEPS)
