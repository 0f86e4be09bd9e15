"""Jobs of one verb, and nothing else: what they do stands in the workspace's control files."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Param, task

from draftmill_airflow.operator import RemoteJobOperator
from draftmill_airflow.retry_policy import RETRIES

with DAG(
    "one_job",
    schedule=None,
    params={"order": Param({}, type="object")},
    default_args=RETRIES,
):

    @task
    def plan(params: dict[str, Any], **context: Any) -> list[str]:
        context["ti"].xcom_push(key="order", value=params["order"])
        return [dataset["name"] for dataset in params["order"]["plan"]["datasets"]]

    names = plan()
    RemoteJobOperator.partial(
        task_id="job", verb="generate", order=names["order"], inline_s=2, map_index_template="{{ task.dataset }}"
    ).expand(dataset=names)
