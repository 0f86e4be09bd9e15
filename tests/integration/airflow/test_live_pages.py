"""What the pages of a run show, where a data set has failed: names for all indexes, a note, and small values that the runbook explains."""

from __future__ import annotations

import json
import urllib.error

import pytest

from tests.dags.test_runbook import XCOMS
from tests.integration.airflow.deployment import Run
from tests.integration.airflow.live import DAG_ID, Live
from tests.integration.rehearsal import tell

pytestmark = [pytest.mark.airflow_live, pytest.mark.endurance, pytest.mark.timeout(1200)]

WAIT_S = 400
MOST_CHARACTERS = 16_000


def xcoms(run: Run) -> set[tuple[str, str]]:
    """Task and key of every XCom of a run, but for those in which Airflow keeps the links of a task."""
    found = run.deployment.api("GET", f"{run.path}/taskInstances/~/xcomEntries?limit=500")["xcom_entries"]
    return {(entry["task_id"], entry["key"]) for entry in found if not entry["key"].startswith("_link_")}


def test_a_run_with_a_failed_data_set_reads_well(live: Live) -> None:
    campaign = live.campaign("pages", "alpha", "beta")
    told = tell(live.workspace, "prepare", "beta", do="fail", how="permanent")
    run = campaign.trigger(merge_partial=True)
    try:
        assert run.wait(WAIT_S) == "failed"
    finally:
        told.unlink()
    states = run.states()
    assert states["dataset.prepare[beta]"] == "failed"
    assert states["dataset.generate[beta]"] == states["dataset.tokenize[beta]"] == "upstream_failed"
    assert not [name for name in states if name.endswith(("[0]", "[1]"))]
    assert "prepare of beta (failed)" in run.get()["note"]

    run.clear("dataset.prepare[beta]")
    assert run.wait(WAIT_S) == "success"
    assert {name for name in run.states() if name.startswith("dataset.")} == {
        f"dataset.{step}[{name}]" for step in ("prepare", "generate", "tokenize") for name in ("alpha", "beta")
    }
    assert "\n- beta: 300 of 300 tokens" in run.get()["note"]

    assert xcoms(run) == set(XCOMS)
    for name, entry in run.tasks().items():
        for task_id, key in XCOMS:
            if task_id == entry["task_id"]:
                assert len(json.dumps(run.result(name, key))) < MOST_CHARACTERS, name


def test_every_task_has_its_docs_on_its_page(live: Live) -> None:
    tasks = live.airflow.api("GET", f"/api/v2/dags/{DAG_ID}/tasks")["tasks"]
    assert len(tasks) == 12
    assert [task["task_id"] for task in tasks if not task["doc_md"]] == []


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"tokens_per_dataset": [10]}, "parameter tokens_per_dataset: Input should be a valid integer"),
        ({"datasets": ["alpha", 5]}, "parameter datasets.1: Input should be a valid string (found 5)"),
        ({"dry_run": {"yes": 1}}, "parameter dry_run: Input should be a valid boolean"),
        ({"max_samples": "1,5k"}, "parameter max_samples: must be a whole number such as 10000000 or 10M (found '1,5k')"),
    ],
)
def test_a_value_of_any_type_comes_through_the_api_and_is_refused_in_a_sentence(
    live: Live, params: dict[str, object], sentence: str
) -> None:
    run = live.campaign("types", "alpha").trigger(**params)
    assert run.wait(WAIT_S) == "failed"
    assert sentence in run.log("plan")
    assert run.tasks()["plan"]["try_number"] == 1


def test_a_backfill_is_refused(live: Live) -> None:
    """Its runs would not be counted by the limit on the runs of a host."""
    dates = {"from_date": "2026-01-01T00:00:00Z", "to_date": "2026-01-02T00:00:00Z"}
    with pytest.raises(urllib.error.HTTPError) as caught:
        live.airflow.api("POST", "/api/v2/backfills", {"dag_id": DAG_ID, **dates})
    assert "does not allow backfill runs" in caught.value.read().decode()
