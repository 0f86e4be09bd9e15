"""What is written once a run has ended, into Airflow's own tables, in memory."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from airflow.models.base import Base
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.types import DagRunType
from sqlalchemy import create_engine, insert, select
from sqlalchemy.orm import Session, configure_mappers

from draftmill_airflow import run_end

REPORT = {"headline": "draftmill: 5 tokens", "totals": []}


@pytest.fixture
def session() -> Iterator[Session]:
    configure_mappers()
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as made:
        yield made
    engine.dispose()


def a_run(session: Session, dag_id: str = "generate_drafter_data__gpu_b") -> DagRun:
    now = datetime.now(timezone.utc)
    run = DagRun(dag_id=dag_id, run_id="manual", run_type=DagRunType.MANUAL, logical_date=now, run_after=now, state="failed")
    session.add(run)
    session.flush()
    return run


def returned(session: Session, run: DagRun, task_id: str, value: Any) -> None:
    keys = {"dag_run_id": run.id, "dag_id": run.dag_id, "run_id": run.run_id}
    session.execute(insert(XComModel).values(**keys, task_id=task_id, map_index=-1, key="return_value", value=value))


def instance(session: Session, run: DagRun, task_id: str, index: int, state: str | None, label: str | None = None) -> None:
    values = {"dag_id": run.dag_id, "run_id": run.run_id, "task_id": task_id, "map_index": index, "state": state, "try_number": 0}
    defaults = {"id": uuid.uuid4(), "max_tries": 0, "pool": "default_pool", "pool_slots": 1, "queue": "default", "executor_config": {}}
    session.execute(insert(TaskInstance).values(**values, **defaults, _rendered_map_index=label))


def labels(session: Session) -> dict[tuple[str, int], str | None]:
    found = session.execute(select(TaskInstance.task_id, TaskInstance.map_index, TaskInstance.rendered_map_index)).all()
    return {(task_id, index): label for task_id, index, label in found}


def test_indexes_that_never_ran_get_the_names_of_their_data_sets(session: Session) -> None:
    run = a_run(session)
    returned(session, run, "plan", ["alpha", "beta", "gamma"])
    instance(session, run, "dataset.prepare", 0, "success", "alpha")
    instance(session, run, "dataset.prepare", 1, "failed", "beta")
    instance(session, run, "dataset.generate", 1, "upstream_failed")
    instance(session, run, "dataset.generate", 2, None)
    instance(session, run, "dataset.tokenize", 0, "skipped", "its name in an earlier plan")
    instance(session, run, "merge", -1, "upstream_failed")
    run_end.on_dag_run_failed(run, "")
    assert labels(session) == {
        ("dataset.prepare", 0): "alpha",
        ("dataset.prepare", 1): "beta",
        ("dataset.generate", 1): "beta",
        ("dataset.generate", 2): "gamma",
        ("dataset.tokenize", 0): "alpha",
        ("merge", -1): None,
    }


def test_what_ran_keeps_the_name_that_it_ran_under(session: Session) -> None:
    run = a_run(session)
    returned(session, run, "plan", ["beta"])
    instance(session, run, "dataset.generate", 0, "success", "alpha")
    run_end.on_dag_run_success(run, "")
    assert labels(session) == {("dataset.generate", 0): "alpha"}


def test_the_totals_become_the_note_and_what_a_person_wrote_stays(session: Session) -> None:
    run = a_run(session)
    returned(session, run, "report", REPORT)
    run_end.on_dag_run_success(run, "")
    assert run.note.startswith("draftmill: 5 tokens")
    run.note = "checked by hand"
    run_end.on_dag_run_failed(run, "")
    assert run.note == "checked by hand"


def test_a_run_that_failed_before_it_was_planned_has_nothing_to_write(session: Session) -> None:
    run = a_run(session)
    run_end.on_dag_run_failed(run, "")
    assert run.note is None


def test_runs_of_other_dags_are_left_alone(session: Session) -> None:
    run = a_run(session, "somebody_elses")
    returned(session, run, "report", REPORT)
    run_end.on_dag_run_success(run, "")
    assert run.note is None


def test_a_run_that_no_session_holds_is_left_alone() -> None:
    run_end.on_dag_run_success(DagRun(dag_id="generate_drafter_data", run_id="manual", run_type=DagRunType.MANUAL), "")
