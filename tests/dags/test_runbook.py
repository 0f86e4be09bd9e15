"""docs/runbook.md says of the DAG what is true of it: its parameters, and everything that its tasks leave as XCom."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag

from draftmill.spec.results import MergeResult
from draftmill_airflow.notify import VARIABLE
from draftmill_airflow.order import Order
from draftmill_airflow.reporting import asset_extra
from draftmill_airflow.task_docs import RESULTS, doc_of
from tests.plans import make_plan

REPOSITORY = Path(__file__).resolve().parents[2]
RUNBOOK = (REPOSITORY / "docs" / "runbook.md").read_text()


@pytest.fixture(scope="module")
def dag() -> Any:
    return DagBag(str(REPOSITORY / "dags"), bundle_path=REPOSITORY / "dags", bundle_name="tests").dags["generate_drafter_data"]


def rows(head: str) -> list[list[str]]:
    """Cells of the table whose head begins with `head`."""
    table = RUNBOOK.partition(f"\n{head}")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


XCOMS = {(words(task)[0], words(key)[0]): words(what) for task, key, what in rows("| task | key |")}


def test_every_parameter_is_explained(dag: Any) -> None:
    assert {words(name)[0] for name, _ in rows("| parameter |")} == set(dag.params)


def test_every_task_is_in_the_table(dag: Any) -> None:
    assert set(XCOMS) == {(task.task_id, "return_value") for task in dag.tasks} | {("plan", "order")}


def test_no_task_leaves_one_more_value_for_each_key_of_what_it_returns(dag: Any) -> None:
    assert [task.task_id for task in dag.tasks if getattr(task, "multiple_outputs", False)] == []


def test_what_a_step_returns_is_named_field_by_field(dag: Any) -> None:
    steps = {task.task_id: task for task in dag.tasks if task.task_type in {"RemoteJobOperator", "StopServerOperator"}}
    assert len(steps) == 7
    for task_id, task in steps.items():
        verb = getattr(task, "verb", None) or task.partial_kwargs.get("verb") or task.task_id.rpartition(".")[2].replace("_", "-")
        if verb != "preflight":
            assert XCOMS[task_id, "return_value"] == list(RESULTS[verb].model_fields), task_id


def test_what_other_tasks_return_is_named_too() -> None:
    order = Order(conn_id="gpu_host", plan=make_plan())
    merged = MergeResult(
        campaign="c", train="/t", manifest="/m", manifest_sha256="0", rows=1, loss_tokens=1, total_tokens=1, datasets={"alpha": 1}
    )
    assert XCOMS["publish", "return_value"] == list(asset_extra(order, merged.model_dump()))
    assert XCOMS["plan", "order"] == XCOMS["collect", "return_value"] == list(Order.model_fields)
    assert XCOMS["report", "return_value"] == ["headline", "totals"]


def test_the_page_of_a_task_names_what_it_returns(dag: Any) -> None:
    assert "- `left_tokens`" not in doc_of("generate")
    assert "- `resumed_tokens`: Tokens that were on disk when this run began." in dag.get_task("dataset.generate").doc_md
    assert "Returns the facts that it found, by check." in dag.get_task("preflight").doc_md


def test_settings_and_dags_have_the_names_that_the_runbook_uses(dag: Any) -> None:
    for name in (VARIABLE, "DRAFTMILL_CAMPAIGN", "AIRFLOW_CONN_GPU_HOST", f"dags/{dag.dag_id}/dagRuns", f"{dag.dag_id}__gpu_b"):
        assert name in RUNBOOK
