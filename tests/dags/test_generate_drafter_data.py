"""The DAG file: it parses, fast and always to the same structure, and its wiring is what the runbook says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization

REPOSITORY = Path(__file__).resolve().parents[2]
FILE = REPOSITORY / "dags" / "generate_drafter_data.py"


@pytest.fixture(scope="module")
def bag() -> DagBag:
    return DagBag(str(REPOSITORY / "dags"), bundle_path=REPOSITORY / "dags", bundle_name="tests")


@pytest.fixture(scope="module")
def dag(bag: DagBag) -> Any:
    return bag.dags["generate_drafter_data"]


def test_the_folder_is_not_empty_and_has_no_import_errors(bag: DagBag) -> None:
    assert bag.import_errors == {}
    assert set(bag.dags) == {"generate_drafter_data"}


def test_the_file_is_short_and_its_docstring_is_the_runbook(dag: Any) -> None:
    assert len(FILE.read_text().splitlines()) < 150
    for words in ("| see what a run would do |", "clear its failed task", "`DRAFTMILL_CAMPAIGN`", "host_key"):
        assert words in dag.doc_md


def test_every_task_has_docs(dag: Any) -> None:
    assert [task.task_id for task in dag.tasks if not task.doc_md] == []


def test_one_run_at_a_time_and_no_catching_up(dag: Any) -> None:
    assert dag.max_active_runs == 1
    assert not dag.catchup


def test_no_run_escapes_the_limit_on_runs(dag: Any) -> None:
    """The runs of a backfill are not counted by max_active_runs."""
    assert {kind.value for kind in dag.allowed_run_types} == {"manual", "scheduled", "operator_triggered", "asset_materialization"}


UPSTREAM = {
    "plan": set(),
    "deliver_code": {"plan"},
    "preflight": {"plan", "deliver_code"},
    "launch_server": {"plan", "preflight"},
    "dataset.prepare": {"plan", "preflight"},
    "dataset.generate": {"plan", "dataset.prepare", "launch_server"},
    "dataset.tokenize": {"plan", "dataset.generate"},
    "stop_server": {"plan", "dataset.generate", "launch_server"},
    "collect": {"dataset.tokenize"},
    "merge": {"collect"},
    "publish": {"collect", "merge"},
    "report": {"publish", "stop_server"},
}


def test_the_wiring(dag: Any) -> None:
    assert {task.task_id: task.upstream_task_ids for task in dag.tasks} == UPSTREAM


def test_the_server_is_set_up_and_torn_down_around_generate_alone(dag: Any) -> None:
    stop = dag.get_task("stop_server")
    assert dag.get_task("launch_server").is_setup
    assert stop.is_teardown
    assert stop.on_failure_fail_dagrun


def test_each_data_set_goes_its_own_way(dag: Any) -> None:
    group = dag.task_group.get_child_by_label("dataset")
    assert {task.task_id for task in group.iter_mapped_dependencies()} == {"plan"}
    for step in ("prepare", "generate", "tokenize"):
        task = dag.get_task(f"dataset.{step}")
        assert task.map_index_template == "{{ task.dataset }}"
        assert task.trigger_rule == "all_success"


def test_collect_and_report_run_whatever_happened(dag: Any) -> None:
    assert {task.task_id for task in dag.tasks if task.trigger_rule == "all_done"} == {"collect", "report"}


def test_whatever_talks_to_the_host_may_be_tried_again(dag: Any) -> None:
    assert {task.task_id for task in dag.tasks if task.retries < 2} == {"report"}


def test_the_asset_is_published_by_one_task(dag: Any) -> None:
    assert {task.task_id: [asset.name for asset in task.outlets] for task in dag.tasks if task.outlets} == {"publish": ["drafter_corpus"]}


PARSED_WITH = {"airflow", "asgiref", "croniter", "draftmill", "draftmill_airflow", "orjson", "packaging", "pydantic"}
"""What parsing may import beside the standard library and what Airflow has imported before. All other packages, pandas and the SSH
libraries first of all, are imported by the functions that use them."""

ROOMS = {"errors", "files", "jobs", "layout", "spec"}
"""The modules of draftmill that it may import: those that only describe."""

_PARSE = f"""
import sys, time
from pathlib import Path
import structlog
from airflow.dag_processing.processor import DagFileParseRequest, _parse_file, _pre_import_airflow_modules
log, file, before = structlog.get_logger(), Path({str(FILE)!r}), set(sys.modules)
_pre_import_airflow_modules(str(file), log)
began = time.process_time()
found = _parse_file(DagFileParseRequest(file=str(file), bundle_path=file.parent, bundle_name="tests", callback_requests=[]), log)
took = time.process_time() - began
names = set(sys.modules) - before
print(found.import_errors, len(found.serialized_dags))
print(*sorted({{name.partition(".")[0] for name in names}} - set(sys.stdlib_module_names)), sep=",")
print(*sorted({{name.split(".")[1] for name in names if name.startswith("draftmill.")}}), sep=",")
print(took)
"""


def python(code: str) -> list[str]:
    """Lines that `code` prints in a process of its own, with include/ on its path."""
    env = os.environ | {"PYTHONPATH": str(REPOSITORY / "include")}
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_dag_processor_parses_it_fast_and_imports_nothing_heavy() -> None:
    """With the processor's own functions: import, build, serialise. Processor time, which a busy machine does not change."""
    outcome, packages, rooms, took = python(_PARSE)[-4:]
    assert outcome == "{} 1"
    assert {name for name in packages.split(",") if not name.startswith("unusual_prefix_")} <= PARSED_WITH
    assert set(rooms.split(",")) <= ROOMS
    assert float(took) < 1


def test_it_parses_to_the_same_structure_every_time(dag: Any) -> None:
    again = DagBag(str(REPOSITORY / "dags"), bundle_path=REPOSITORY / "dags", bundle_name="tests").dags["generate_drafter_data"]
    assert DagSerialization.to_dict(again) == DagSerialization.to_dict(dag)


def test_a_broken_campaign_file_is_an_import_error_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTMILL_CAMPAIGN", "no_such_campaign")
    errors = DagBag(str(REPOSITORY / "dags"), bundle_path=REPOSITORY / "dags", bundle_name="tests").import_errors
    assert "campaign: 'no_such_campaign' is not a campaign file" in "".join(errors.values())


def test_the_schedule_comes_from_the_campaign_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "include" / "config", tmp_path / "config")
    campaign = tmp_path / "config" / "campaigns" / "synth_100k.yaml"
    campaign.write_text(campaign.read_text().replace("schedule: null", 'schedule: "0 3 * * 6"'))
    monkeypatch.setenv("DRAFTMILL_CONFIG", str(tmp_path / "config"))
    dag = DagBag(str(REPOSITORY / "dags"), bundle_path=REPOSITORY / "dags", bundle_name="tests").dags["generate_drafter_data"]
    assert dag.schedule == "0 3 * * 6"


def test_a_second_host_has_a_dag_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dag: Any) -> None:
    shutil.copytree(REPOSITORY / "include" / "config", tmp_path / "config")
    text = (tmp_path / "config" / "campaigns" / "synth_100k.yaml").read_text()
    changes = {"name: synth_100k": "name: other", "ssh_conn_id: gpu_host": "ssh_conn_id: gpu_b", "schedule: null": 'schedule: "@daily"'}
    for old, new in changes.items():
        text = text.replace(old, new)
    (tmp_path / "config" / "campaigns" / "other.yaml").write_text(text)
    monkeypatch.setenv("DRAFTMILL_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("DRAFTMILL_CAMPAIGN", "synth_100k,other")
    found = DagBag(str(REPOSITORY / "dags"), bundle_path=REPOSITORY / "dags", bundle_name="tests").dags
    assert set(found) == {"generate_drafter_data", "generate_drafter_data__gpu_b"}
    first, second = found["generate_drafter_data"], found["generate_drafter_data__gpu_b"]
    assert DagSerialization.to_dict(first) == DagSerialization.to_dict(dag)
    assert {task.task_id: task.upstream_task_ids for task in second.tasks} == UPSTREAM
    assert (first.schedule, second.schedule) == (None, "@daily")
    assert (first.params["campaign"], second.params["campaign"]) == ("synth_100k", "other")
    assert first.max_active_runs == second.max_active_runs == 1
    assert second.tags == {"draftmill", "gpu_b"}


def test_the_plugin_registers_links_and_the_note() -> None:
    code = "import runpy; print(runpy.run_path('plugins/draftmill_plugin.py')['DraftmillPlugin'].name)"
    env = os.environ | {"PYTHONPATH": str(REPOSITORY / "include")}
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=REPOSITORY, env=env, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip().endswith("draftmill")
