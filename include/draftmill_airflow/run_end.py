"""What is written into Airflow's own records once a run has ended: its note, and names for the indexes that never ran.

A task cannot do either for its own run, so this is a listener: whatever ends a run calls it, most often the scheduler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

from draftmill_airflow.hosts import is_ours
from draftmill_airflow.run_note import MARK, note_of

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from sqlalchemy.orm import Session

GROUP = "dataset."
NEVER_RAN = ("upstream_failed", "skipped", "removed")


def _returned(session: Session, dag_run: DagRun, task_id: str) -> Any:
    """What a task of the run returned; None where it returned nothing."""
    from airflow.models.xcom import XComModel

    query = XComModel.get_many(run_id=dag_run.run_id, dag_ids=dag_run.dag_id, task_ids=task_id, key="return_value")
    return session.scalars(query.with_only_columns(XComModel.value)).first()


def _write_note(session: Session, dag_run: DagRun) -> None:
    found = _returned(session, dag_run, "report")
    note = note_of(found if isinstance(found, dict) else None)
    # What a person has written stays.
    if note and str(dag_run.note or MARK).startswith(MARK):
        dag_run.note = note


def _name_indexes(session: Session, dag_run: DagRun) -> None:
    """Airflow names an index where it runs it; one whose upstream failed would go by its number."""
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import or_, update

    names = _returned(session, dag_run, "plan")
    for index, name in enumerate(names if isinstance(names, list) else []):
        its_tasks = (TaskInstance.dag_id == dag_run.dag_id, TaskInstance.run_id == dag_run.run_id, TaskInstance.map_index == index)
        idle = or_(TaskInstance.state.in_(NEVER_RAN), TaskInstance.state.is_(None))
        chosen = update(TaskInstance).where(*its_tasks, TaskInstance.task_id.startswith(GROUP), idle)
        session.execute(chosen.values(_rendered_map_index=name).execution_options(synchronize_session="fetch"))


def _finish(dag_run: DagRun) -> None:
    from sqlalchemy.orm import object_session

    session = object_session(dag_run) if is_ours(dag_run.dag_id) else None
    if session is not None:
        _write_note(session, dag_run)
        _name_indexes(session, dag_run)


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    """A run has ended well."""
    _finish(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    """A run has failed."""
    _finish(dag_run)
