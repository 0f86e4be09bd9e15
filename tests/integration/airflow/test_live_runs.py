"""The real DAG under a real scheduler, triggerer and sshd: whole runs, refusals, and every way to try again."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from tests.integration.airflow.live import CONN_ID, DATASETS, Live
from tests.integration.rehearsal import tell

pytestmark = [pytest.mark.airflow_live, pytest.mark.endurance, pytest.mark.timeout(1200)]

WAIT_S = 500


def seconds_of(entry: dict[str, Any]) -> float:
    """From the start to the end of a task instance, as the API shows it."""
    start, end = (datetime.fromisoformat(entry[name]) for name in ("start_date", "end_date"))
    return (end - start).total_seconds()


def test_a_run_is_green_and_says_what_it_did(live: Live) -> None:
    campaign = live.campaign("whole")
    run = campaign.trigger()
    assert run.wait(WAIT_S) == "success"
    for name in DATASETS:
        campaign.check_rows(name, 30)
        assert run.tasks()[f"dataset.generate[{name}]"]["rendered_map_index"] == name
        assert run.result(f"dataset.generate[{name}]")["completion_tokens"] == 300
    assert campaign.events()[-1] == "merge alpha beta gamma"
    assert campaign.count("server up by launch") == campaign.count("stop-server") == 1
    assert not campaign.server_is_up()
    assert "not measured" in run.log("plan")
    assert "900 tokens left to generate" in run.log("plan")
    report = run.result("report")
    assert report["totals"][-1] | {"data set": "total", "tokens": 900, "new tokens": 900} == report["totals"][-1]
    assert run.get()["note"].startswith("draftmill: 900 tokens in 90 responses, 900 of them new")
    events = live.airflow.api("GET", "/api/v2/assets/events?limit=100")["asset_events"]
    extra = next(event["extra"] for event in events if event["source_run_id"] == run.run_id)
    assert (extra["campaign"], extra["connection"], extra["loss_tokens"]) == ("whole", CONN_ID, 900)
    assert extra["path"] == str(campaign.folder / "corpus" / "train.jsonl")
    links = live.airflow.api("GET", f"{run.path}/taskInstances/dataset.generate/links?map_index=0")["extra_links"]
    assert links["Campaign folder"].endswith(str(campaign.folder))
    assert links["Journal"].endswith(f"{campaign.folder}/journal/alpha.jsonl")


def test_a_second_run_of_a_finished_campaign_does_nothing_and_says_so(live: Live) -> None:
    campaign = live.campaign("again", "alpha", "beta")
    assert campaign.trigger().wait(WAIT_S) == "success"
    before = campaign.events()
    run = campaign.trigger()
    assert run.wait(WAIT_S) == "success"
    assert campaign.count("server up") == campaign.count("merge") == 1
    assert "launch not needed" in campaign.events()[len(before) :]
    assert run.states()["publish"] == "skipped"
    assert run.result("report")["headline"].endswith("nothing was left to generate")
    assert max(entry["try_number"] for entry in run.tasks().values()) == 1
    assert all(seconds_of(entry) < 15 for name, entry in run.tasks().items() if "generate[" in name)
    campaign.check_over()


def test_a_raised_budget_continues(live: Live) -> None:
    campaign = live.campaign("raised", "alpha")
    assert campaign.trigger(tokens_per_dataset="0.1k").wait(WAIT_S) == "success"
    assert len(campaign.rows("alpha")) == 10
    run = campaign.trigger(tokens_per_dataset=250.0)
    assert run.wait(WAIT_S) == "success"
    campaign.check_rows("alpha", 25)
    assert run.result("dataset.generate[alpha]")["resumed_tokens"] == 100


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"datasets": ["alpa"]}, "parameter datasets: 'alpa' is unknown; did you mean alpha?"),
        ({"datasets": ["alpha", "alpha"]}, "parameter datasets: names alpha more than once"),
        ({"tokens_per_dataset": 0}, "parameter tokens_per_dataset: Input should be greater than 0"),
        ({"campaign": "x; touch /tmp/pwned"}, "parameter campaign: String should match pattern"),
        ({"budget": 5}, "parameter budget: unknown key"),
    ],
)
def test_bad_parameters_are_refused_by_plan_before_anything_runs_on_the_host(live: Live, params: dict[str, object], sentence: str) -> None:
    campaign = live.campaign("refused")
    logins = (live.sshd.folder / "sshd.log").read_text().count("Accepted publickey")
    run = live.airflow.trigger("generate_drafter_data", **({"campaign": "refused"} | params))
    assert run.wait(WAIT_S) == "failed"
    assert sentence in run.log("plan")
    assert run.tasks()["plan"]["try_number"] == 1
    assert not campaign.folder.exists()
    assert (live.sshd.folder / "sshd.log").read_text().count("Accepted publickey") == logins


def test_a_dry_run_shows_the_table_and_starts_nothing(live: Live) -> None:
    campaign = live.campaign("dry")
    run = campaign.trigger(dry_run=True)
    assert run.wait(WAIT_S) == "success"
    states = run.states()
    assert {name for name, state in states.items() if state == "success"} == {"plan", "deliver_code", "preflight", "report"}
    assert "alpha short" in run.log("plan")
    assert campaign.events() == []


def test_a_failed_data_set_leaves_the_others_alone_and_is_finished_by_clearing_it(live: Live) -> None:
    campaign = live.campaign("onefails")
    told = tell(live.workspace, "generate", "beta", do="fail", how="permanent")
    run = campaign.trigger()
    try:
        assert run.wait(WAIT_S) == "failed"
    finally:
        told.unlink()
    states = run.states()
    assert states["dataset.generate[beta]"] == "failed"
    assert run.tasks()["dataset.generate[beta]"]["try_number"] == 1  # permanent: not tried again
    assert states["dataset.tokenize[alpha]"] == states["dataset.tokenize[gamma]"] == "success"
    assert "generate of beta (failed)" in run.log("report")
    assert campaign.count("merge") == 0
    assert not campaign.server_is_up()

    run.clear("dataset.generate[beta]")
    assert run.wait(WAIT_S) == "success"
    for name in DATASETS:
        campaign.check_rows(name, 30)
    assert len(campaign.processes("alpha")) == 1
    assert campaign.count("server up") == 2
    assert campaign.count("merge alpha beta gamma") == campaign.count("merge") == 1
    campaign.check_over()


def test_a_temporary_failure_is_tried_again_by_itself(live: Live) -> None:
    campaign = live.campaign("temporary", "alpha", "beta")
    told = [
        tell(live.workspace, "prepare", "beta", do="fail", how="temporary", times=1),
        tell(live.workspace, "generate", "alpha", do="fail", how="temporary", times=1),
    ]
    run = campaign.trigger()
    try:
        assert run.wait(WAIT_S) == "success"
    finally:
        for path in told:
            path.unlink()
    assert run.tasks()["dataset.prepare[beta]"]["try_number"] == 2
    assert run.tasks()["dataset.generate[alpha]"]["try_number"] == 2
    for name in ("alpha", "beta"):
        campaign.check_rows(name, 30)
    assert campaign.count("server up") == campaign.count("stop-server") == campaign.count("merge") == 1
    campaign.check_over()


def test_clear_only_failed_finishes_the_run_although_it_leaves_out_the_setup(live: Live) -> None:
    campaign = live.campaign("onlyfailed", "alpha", "beta")
    told = tell(live.workspace, "generate", "beta", do="fail", how="permanent")
    run = campaign.trigger()
    try:
        assert run.wait(WAIT_S) == "failed"
    finally:
        told.unlink()
    run.clear(only_failed=True)
    assert run.wait(WAIT_S) == "success"
    campaign.check_rows("beta", 30)
    assert len(campaign.processes("alpha")) == 1
    assert campaign.count("server up by generate beta") == 1  # the task itself brings it up
    assert campaign.count("merge") == 1
    campaign.check_over(told_to_stop=False)  # the teardown had not failed; a real server without a user stops by itself: test_life.py


def test_clearing_a_whole_finished_run_repeats_nothing(live: Live) -> None:
    campaign = live.campaign("clearall", "alpha", "beta")
    run = campaign.trigger()
    assert run.wait(WAIT_S) == "success"
    run.clear()
    live.airflow.wait_for(lambda: run.get()["state"] in {"queued", "running"}, "the run to start again")
    assert run.wait(WAIT_S) == "success"
    for name in ("alpha", "beta"):
        campaign.check_rows(name, 30)
        assert len(campaign.processes(name)) == 1
    assert campaign.count("merge") == 1
    campaign.check_over()


def test_marking_a_deferred_task_failed_stops_its_job_and_the_server(live: Live) -> None:
    campaign = live.campaign("marked", "alpha", "beta", datasets=[{"name": "alpha", "budget_tokens": 100_000}, {"name": "beta"}])
    run = campaign.trigger()
    run.wait_for_state("dataset.generate[alpha]", {"deferred"}, 300)
    run.mark("dataset.generate[alpha]", "failed")
    assert run.wait(WAIT_S) == "failed"
    assert campaign.count("stopped alpha") == 1
    assert run.states()["dataset.tokenize[beta]"] == "success"
    campaign.check_over()


def test_clearing_a_deferred_task_goes_on_with_one_writer(live: Live) -> None:
    campaign = live.campaign("cleared", "alpha", tokens_per_dataset=4_000)
    run = campaign.trigger()
    run.wait_for_state("dataset.generate[alpha]", {"deferred"}, 300)
    run.clear("dataset.generate[alpha]")
    assert run.wait(WAIT_S) == "success"
    campaign.check_rows("alpha", 400)
    assert campaign.count("merge") == 1
    campaign.check_over()


def test_a_second_run_waits_for_the_first(live: Live) -> None:
    campaign = live.campaign("waits", "alpha", tokens_per_dataset=1_000)
    first, second = campaign.trigger(), campaign.trigger(datasets="alpha")
    first.wait_for_state("dataset.prepare[alpha]", {"running", "success"}, 300)
    assert second.get()["state"] == "queued"
    assert (first.wait(WAIT_S), second.wait(WAIT_S)) == ("success", "success")
    campaign.check_rows("alpha", 100)
    assert campaign.count("merge") == 1
    campaign.check_over()


def test_merge_partial_merges_the_rest_and_the_run_is_not_green(live: Live) -> None:
    campaign = live.campaign("partial", "alpha", "beta")
    told = tell(live.workspace, "tokenize", "beta", do="fail", how="permanent")
    run = campaign.trigger(merge_partial=True)
    try:
        assert run.wait(WAIT_S) == "failed"
    finally:
        told.unlink()
    assert run.states()["merge"] == "success"
    assert campaign.events()[-1] == "merge alpha"
    assert json.loads((campaign.folder / "corpus" / "manifest.json").read_text()) == {"alpha": 30}


def test_marking_the_run_failed_stops_everything_in_order(live: Live) -> None:
    campaign = live.campaign("stopped", "alpha", tokens_per_dataset=100_000)
    run = campaign.trigger()
    run.wait_for_state("dataset.generate[alpha]", {"deferred"}, 300)
    live.airflow.api("PATCH", run.path, {"state": "failed"})
    live.airflow.wait_for(lambda: campaign.count("stopped alpha") == 1, "the job to stop", 120)
    live.airflow.wait_for(lambda: not campaign.server_is_up(), "the server to stop", 120)
    kept = len(campaign.rows("alpha"))
    assert kept > 0
    campaign.check_rows("alpha", kept)
