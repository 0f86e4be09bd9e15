"""# Generate drafter data

Turns prompts into training data for an EAGLE-3 drafter: starts SGLang on a GPU host over SSH, lets the target model answer every data
set of a campaign under a budget of completion tokens, and merges the answers into one token-exact corpus.

A run **continues** its campaign. What is on the host counts, so a second run of a finished campaign takes a minute and generates nothing.

| I want to | do this |
|---|---|
| see what a run would do | trigger with *Dry run*; read the log of `plan` |
| run the campaign | trigger; change nothing |
| give the data sets more tokens | trigger with a higher *Tokens per data set* (10M, 2.5e6) |
| work on some data sets only | choose them under *Data sets* |
| try a failed data set again | clear its failed task with *Downstream*; the server comes up by itself, the corpus is merged again |
| stop everything in order | mark the run failed: jobs and server stop, finished answers are kept |
| change the schedule, the model, the sampling | edit `include/config/campaigns/NAME.yaml`; `DRAFTMILL_CAMPAIGN` names the scheduled one |
| use a second host at the same time | name a campaign of it in `DRAFTMILL_CAMPAIGN` too; it gets a DAG of its own |

**Something failed.** The last line of the task's log says in one sentence what to do. Temporary faults were tried again before; a
permanent one (a wrong parameter, a missing model) was not. Nothing is lost either way: answers are on the host's disk, one writer each.

**The host** is the SSH connection of the campaign file. It needs `host_key` and `draftmill` in its extra field. Each host has its own DAG
and one run at a time. The links of a task lead to the campaign's folder and to the journal.

Task order: `plan`, `deliver_code`, `preflight`; then `launch_server` while each data set is prepared; for each data set `prepare`,
`generate`, `tokenize`; then `collect`, `merge`, `publish`. `stop_server` and `report` run whatever happens. The run is green only if
every data set reached its budget or ran out of prompts.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Asset, TriggerRule, task, task_group
from airflow.sdk.exceptions import AirflowSkipException

from draftmill_airflow import planning, reporting
from draftmill_airflow.delivery import ensure_code
from draftmill_airflow.form import form
from draftmill_airflow.host import Host
from draftmill_airflow.hosts import HostDag, configuration, host_dags
from draftmill_airflow.notify import callbacks
from draftmill_airflow.operator import RemoteJobOperator, asker_of
from draftmill_airflow.order import Order
from draftmill_airflow.retry_policy import RETRIES
from draftmill_airflow.ssh import connect
from draftmill_airflow.tables import show
from draftmill_airflow.teardown import StopServerOperator

CONFIG = configuration()
CORPUS = Asset("drafter_corpus")


def wire(host: HostDag) -> None:
    """The tasks of one host's DAG. Called below a `with DAG(...)`."""

    @task(doc_md="Checks the parameters, reads what is on the host, and shows the table of what is left. Returns the data sets to work on.")
    def plan(params: dict[str, Any], **context: Any) -> list[str]:
        order = planning.make_order(CONFIG, host, params)
        context["ti"].xcom_push(key="order", value=order.model_dump(mode="json"))
        found = planning.survey(order, asker_of(context))
        planning.log.info("\n%s", show(planning.plan_table(order, found)))
        planning.log.info("%s tokens left to generate", f"{found.left_tokens:,}")
        return [] if order.dry_run else order.plan.names

    @task(doc_md="Makes sure that this deployment's code is on the host, whole, and removes code unused for a month. Returns its path.")
    def deliver_code(order: dict[str, Any]) -> str:
        with connect(Host.load(order["conn_id"])) as session:
            return ensure_code(session, thorough=True).zipapp

    # One value each, not one more for every key of it.
    @task(
        multiple_outputs=False,
        trigger_rule=TriggerRule.ALL_DONE,
        doc_md="Says which data sets are finished, and fails where that is not enough to merge.",
    )
    def collect(**context: Any) -> dict[str, Any]:
        asked, finished = reporting.pull_order(context["ti"]), reporting.pull_results(context["ti"], "dataset.tokenize")
        if asked is None or asked.dry_run:
            raise AirflowSkipException("there is nothing to merge")
        return reporting.order_of_finished(asked, finished).model_dump(mode="json")

    @task(
        multiple_outputs=False,
        outlets=[CORPUS],
        inlets=[CORPUS],
        doc_md="Tells those who wait for the asset `drafter_corpus` of a new corpus, once.",
    )
    def publish(order: dict[str, Any], merged: dict[str, Any], **context: Any) -> dict[str, Any]:
        extra = reporting.asset_extra(Order.model_validate(order, strict=False), merged)
        if reporting.already_published(context["inlet_events"][CORPUS], extra):
            raise AirflowSkipException("the corpus has not changed since its last event")
        context["outlet_events"][CORPUS].extra = extra
        return extra

    @task(
        multiple_outputs=False,
        trigger_rule=TriggerRule.ALL_DONE,
        retries=0,
        doc_md="Token totals of every data set; fails where anything has failed.",
    )
    def report(**context: Any) -> dict[str, Any]:
        return reporting.report(context["ti"])

    names = plan()
    order = names["order"]
    preflight = RemoteJobOperator(task_id="preflight", verb="preflight", order=order, time_limit=timedelta(minutes=30))
    launch = RemoteJobOperator(task_id="launch_server", verb="launch", order=order, time_limit=timedelta(hours=3)).as_setup()
    stop = StopServerOperator(task_id="stop_server", user_task_id="dataset.generate", order=order, time_limit=timedelta(hours=1))

    @task_group(group_id="dataset")
    def dataset(name: str) -> None:
        label: dict[str, Any] = {"order": order, "dataset": name, "map_index_template": "{{ task.dataset }}"}
        prepare = RemoteJobOperator(task_id="prepare", verb="prepare", max_active_tis_per_dagrun=2, **label)
        generate = RemoteJobOperator(task_id="generate", verb="generate", grace_s=180, **label)
        tokenize = RemoteJobOperator(task_id="tokenize", verb="tokenize", max_active_tis_per_dagrun=2, **label)
        launch >> generate
        prepare >> generate >> tokenize
        generate >> stop.as_teardown(setups=launch, on_failure_fail_dagrun=True)

    datasets = dataset.expand(name=names)
    collected = collect()
    merge = RemoteJobOperator(task_id="merge", verb="merge", order=collected)
    deliver_code(order) >> preflight >> [launch, datasets]
    datasets >> collected >> merge
    [publish(collected, merge.output), stop] >> report()


for HOST in host_dags(CONFIG):
    with DAG(
        HOST.dag_id,
        doc_md=__doc__,
        schedule=HOST.campaign.schedule,
        catchup=False,
        max_active_runs=1,
        # Not "backfill": its runs have a limit of their own, and a run continues its campaign whatever its date is.
        allowed_run_types=["manual", "scheduled", "operator_triggered", "asset_materialization"],
        params=form(CONFIG, HOST.campaign),
        default_args=RETRIES,
        tags=["draftmill", HOST.conn_id],
        **callbacks(),
    ):
        wire(HOST)
