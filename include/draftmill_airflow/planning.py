"""The `plan` task: parameters to an order, and what is left of it on the host."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from draftmill.errors import PermanentError
from draftmill.jobs.models import StartRequest
from draftmill.spec.build import build_plan
from draftmill.spec.load import Config
from draftmill.spec.params import parse_params
from draftmill.spec.results import SurveyResult
from draftmill_airflow.delivery import ensure_code
from draftmill_airflow.errors import JobFailed
from draftmill_airflow.host import Host
from draftmill_airflow.hosts import HostDag, require_own_host
from draftmill_airflow.order import Order
from draftmill_airflow.outcome import result_of
from draftmill_airflow.ssh import HostSession, connect
from draftmill_airflow.watch import JobWatch

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)

SURVEY_S = 900
CALL_S = 60


def make_order(config: Config, dag: HostDag, params: Mapping[str, Any]) -> Order:
    """Check the parameters of a run and resolve them. AirflowFailException with the field and the reason; nothing else was touched."""
    try:
        run = parse_params(params, campaign=dag.campaign.name)
        require_own_host(config, dag, config.campaign(run.campaign))
        plan = build_plan(config, run)
    except PermanentError as error:
        raise AirflowFailException(str(error)) from None
    return Order(conn_id=dag.conn_id, dry_run=bool(run.dry_run), plan=plan)


def survey(order: Order, asker: str) -> SurveyResult:
    """What is on the host for the order. Delivers the code first. Raises what the retry policy knows."""
    with connect(Host.load(order.conn_id)) as session:
        zipapp = ensure_code(session).zipapp
        return SurveyResult.model_validate(run_here(session, zipapp, order, "survey", asker))


def run_here(session: HostSession, zipapp: str, order: Order, verb: str, asker: str) -> dict[str, Any]:
    """Run a short step of the whole campaign, and wait for it on this connection."""
    host, key = session.host, order.key(verb, None)
    session.call(zipapp, "start", StartRequest(workspace=host.workspace, key=key, plan=order.plan, secrets=host.secrets, asker=asker), 150)
    watch = JobWatch(host.workspace, key, time.monotonic())
    deadline = time.monotonic() + SURVEY_S
    while not watch.finished:
        if time.monotonic() > deadline:
            raise JobFailed(f"{key}: not done after {SURVEY_S} s on {host.address}; the next try attaches to it")
        status = session.call(zipapp, "status", watch.request(time.monotonic(), 30, 2), 30 + CALL_S)
        for line in watch.see(status, time.monotonic()):
            log.info("%s", line)
    return result_of(watch.last)


def plan_table(order: Order, found: SurveyResult) -> pd.DataFrame:
    """One row per data set, in work order: what is asked for, what is there, what is left. Tokens are completion tokens."""
    import pandas as pd

    rows = []
    for entry in found.datasets:
        dataset = order.plan.dataset(entry.name)
        rows.append(
            {
                "data set": entry.name,
                "class": dataset.length_class,
                "budget": entry.budget_tokens,
                "on disk": entry.on_disk_tokens,
                "left": entry.left_tokens,
                "prompts": "not prepared" if entry.prompts is None else entry.prompts,
                "ETA": eta(entry.left_tokens, entry.tokens_per_s),
            }
        )
    return pd.DataFrame(rows)


def eta(left_tokens: int, tokens_per_s: float | None) -> str:
    """How long generating alone would take at the rate that was measured last."""
    if not left_tokens:
        return "done"
    if not tokens_per_s:
        return "not measured"
    minutes = left_tokens / tokens_per_s / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
