"""Puts a run's totals into its note, where the list of runs shows them.

A task cannot write the note of its own run, so this is a listener: the scheduler calls it when a run has ended.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

from draftmill_airflow.hosts import is_ours

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

log = logging.getLogger(__name__)

MARK = "draftmill: "


def note_of(report: dict[str, Any] | None) -> str | None:
    """The note for what `report` returned: its headline and one line per data set. None where there is none."""
    if not report or not report.get("headline"):
        return None
    lines = [f"- {row['data set']}: {row['tokens']:,} of {row['budget']:,} tokens, {row['outcome']}" for row in report.get("totals", [])]
    return "\n".join([str(report["headline"]), "", *lines])[:1000]


def _write(dag_run: DagRun) -> None:
    if not is_ours(dag_run.dag_id):
        return
    from airflow.models.xcom import XComModel
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    if session is None:
        return
    query = XComModel.get_many(run_id=dag_run.run_id, dag_ids=dag_run.dag_id, task_ids="report", key="return_value")
    found = session.scalars(query.with_only_columns(XComModel.value)).first()
    note = note_of(found if isinstance(found, dict) else None)
    # What a person has written stays.
    if note and str(dag_run.note or MARK).startswith(MARK):
        dag_run.note = note


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    """A run has ended well."""
    _write(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    """A run has failed."""
    _write(dag_run)
