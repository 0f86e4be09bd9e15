"""Totals by name, what may be merged, and when a run may be called a success."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from draftmill_airflow import reporting
from draftmill_airflow.order import Order
from draftmill_airflow.tables import show
from tests.plans import make_dataset, make_plan

NAMES = ("alpha", "beta", "gamma")


def order(**changes: Any) -> Order:
    return Order(conn_id="c", plan=make_plan(*(make_dataset(name) for name in NAMES), **changes))


def generated(name: str, **changes: Any) -> dict[str, Any]:
    values = {
        "dataset": name,
        "budget_tokens": 10_000,
        "completion_tokens": 10_050,
        "prompt_tokens": 700,
        "responses": 12,
        "finish_reasons": {"stop": 10, "length": 2},
        "outcome": "budget_reached",
        "resumed_tokens": 50,
        "new_tokens": 10_000,
        "new_responses": 11,
        "seconds": 10.0,
        "tokens_per_s": 1000.0,
        "path": "/p",
    }
    return values | changes


def test_results_go_by_name_not_by_position() -> None:
    found = reporting.by_dataset([generated("gamma"), generated("alpha")])
    assert set(found) == {"alpha", "gamma"}
    assert reporting.unfinished(order(), found) == ["beta"]


def test_a_single_index_may_come_as_a_bare_value() -> None:
    assert set(reporting.by_dataset(generated("alpha"))) == {"alpha"}
    assert reporting.by_dataset(None) == {}
    assert reporting.by_dataset([None]) == {}


def test_everything_finished_is_merged_whole() -> None:
    whole = order()
    assert reporting.order_of_finished(whole, dict.fromkeys(NAMES)) is whole


def test_an_unfinished_data_set_blocks_the_merge_by_name() -> None:
    with pytest.raises(AirflowFailException, match="not merged: beta did not finish"):
        reporting.order_of_finished(order(), dict.fromkeys(["alpha", "gamma"]))


def test_merge_partial_narrows_the_order_to_what_is_finished() -> None:
    part = reporting.order_of_finished(order(merge_partial=True), dict.fromkeys(["gamma", "alpha"]))
    assert part.plan.names == ["alpha", "gamma"]


def test_nothing_finished_is_never_merged() -> None:
    with pytest.raises(AirflowFailException, match="alpha, beta, gamma"):
        reporting.order_of_finished(order(merge_partial=True), {})


def test_totals_add_up_and_read_well() -> None:
    table = reporting.totals(order(), reporting.by_dataset([generated("beta"), generated("alpha", new_tokens=0, outcome="exhausted")]))
    assert list(table["data set"]) == [*NAMES, "total"]
    assert (
        table.iloc[-1].to_dict() | {"tokens": 20_100, "new tokens": 10_000, "responses": 24, "budget": 30_000} == table.iloc[-1].to_dict()
    )
    assert list(table["outcome"]) == ["exhausted", "budget_reached", "not finished", ""]
    assert "10,050" in show(table)
    assert reporting.headline(table, []) == "draftmill: 20,100 tokens in 24 responses, 10,000 of them new"


def test_a_run_without_anything_new_says_so() -> None:
    table = reporting.totals(order(), reporting.by_dataset([generated(name, new_tokens=0) for name in NAMES]))
    assert reporting.headline(table, []).endswith("nothing was left to generate")


STATES = {
    "plan": "success",
    "publish": "skipped",
    "dataset.generate_0": "success",
    "dataset.generate_1": "failed",
    "dataset.tokenize_1": "upstream_failed",
}


def test_troubles_are_named_by_data_set() -> None:
    assert reporting.troubles(STATES | {"stop_server": "failed"}, order()) == ["generate of beta (failed)", "stop_server (failed)"]
    assert reporting.troubles({"plan": "failed"}, None) == ["plan (failed)"]


class Task(SimpleNamespace):
    """What `report` uses of its task instance."""

    def xcom_pull(self, task_ids: str, key: str = "return_value") -> Any:
        return self.values.get((task_ids, key))

    def xcom_push(self, key: str, value: Any) -> None:
        self.values["report", key] = value

    def get_task_states(self, dag_id: str, run_ids: list[str]) -> dict[str, Any]:
        return {run_ids[0]: self.states}


def task(states: dict[str, str], found: Order | None, results: list[Any] | None = None) -> Task:
    values = {("plan", "order"): found and found.model_dump(mode="json"), ("dataset.generate", "return_value"): results}
    return Task(dag_id="d", run_id="r", task_id="report", states=states | {"report": "running"}, values=values)


def test_a_good_run_is_reported() -> None:
    ti = task({"plan": "success"}, order(), [generated(name) for name in NAMES])
    assert reporting.report(ti)["totals"][-1]["tokens"] == 30_150


def test_a_failed_data_set_fails_the_report_after_the_totals_were_stored() -> None:
    ti = task(STATES, order(merge_partial=True), [generated("alpha")])
    with pytest.raises(AirflowFailException, match=r"not complete: generate of beta \(failed\); clear what failed"):
        reporting.report(ti)
    assert ti.values["report", "return_value"]["totals"][0]["tokens"] == 10_050


def test_a_run_without_a_plan_says_where_to_look() -> None:
    with pytest.raises(AirflowFailException, match="the log of `plan` says why"):
        reporting.report(task({"plan": "failed"}, None))


def test_a_dry_run_is_reported_as_one() -> None:
    dry = order().model_copy(update={"dry_run": True})
    assert reporting.report(task({"plan": "success", "launch_server": "skipped"}, dry)) == {
        "headline": "draftmill: dry run, nothing was started",
        "totals": [],
    }


def event(campaign: str, digest: str, connection: str = "gpu_host") -> Any:
    return SimpleNamespace(extra={"campaign": campaign, "connection": connection, "manifest_sha256": digest})


def test_an_event_is_sent_once_for_a_corpus() -> None:
    extra = event("a", "1").extra
    assert reporting.already_published([SimpleNamespace(extra={}), event("a", "0"), event("a", "1")], extra)
    assert not reporting.already_published([event("a", "1"), event("a", "2")], extra)
    assert not reporting.already_published([SimpleNamespace(extra=None)], extra)
    assert not reporting.already_published([], extra)


def test_events_of_other_campaigns_and_hosts_do_not_count() -> None:
    extra = event("a", "1").extra
    assert reporting.already_published([event("a", "1"), event("b", "2"), event("a", "2", "gpu_b")], extra)
    assert not reporting.already_published([event("b", "1"), event("a", "1", "gpu_b")], extra)
