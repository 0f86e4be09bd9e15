"""After the data sets: which of them are done, the totals, and whether the run may be called a success. Everything goes by name."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from draftmill.spec.results import GenerateResult, MergeResult
from draftmill_airflow.order import Order
from draftmill_airflow.tables import show

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)

GOOD = frozenset({"success", "skipped"})
COLUMNS = ["data set", "outcome", "budget", "tokens", "new tokens", "resumed", "prompt tokens", "responses", "stop", "length", "tok/s"]


def by_dataset(results: Any) -> dict[str, dict[str, Any]]:
    """Results of a mapped task by the name of their data set.

    Positions mean nothing: a failed index leaves no gap. With a single index, Airflow may hand over the bare value.
    """
    if results is None:
        return {}
    values: Iterable[Any] = [results] if isinstance(results, Mapping) else results
    return {value["dataset"]: dict(value) for value in values if isinstance(value, Mapping) and "dataset" in value}


def pull_order(ti: Any) -> Order | None:
    """What `plan` ordered; None where it failed before."""
    value = ti.xcom_pull(task_ids="plan", key="order")
    return None if value is None else Order.model_validate(value, strict=False)


def pull_results(ti: Any, task_id: str) -> dict[str, dict[str, Any]]:
    """Results of a task of the data-set group, by the name of their data set."""
    return by_dataset(ti.xcom_pull(task_ids=task_id))


def unfinished(order: Order, tokenized: Mapping[str, Any]) -> list[str]:
    """Data sets of the order without a result of their last step."""
    return [name for name in order.plan.names if name not in tokenized]


def order_of_finished(order: Order, tokenized: Mapping[str, Any]) -> Order:
    """The order that `merge` carries out: narrowed to what is finished, where the run allows a part.

    Raises AirflowFailException where it does not, or where nothing is finished.
    """
    missing = unfinished(order, tokenized)
    if not missing:
        return order
    done = [name for name in order.plan.names if name not in missing]
    if not order.plan.merge_partial or not done:
        raise AirflowFailException(
            f"not merged: {', '.join(missing)} did not finish; clear the failed task of each, or set merge_partial to merge without them"
        )
    datasets = tuple(order.plan.dataset(name) for name in done)
    return order.model_copy(update={"plan": order.plan.model_copy(update={"datasets": datasets})})


def totals(order: Order, generated: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """One row per data set of the order, then their sum. Tokens are completion tokens; a data set without a result shows zeros."""
    import pandas as pd

    rows = [_row(name, generated.get(name), order.plan.dataset(name).budget_tokens) for name in order.plan.names]
    table = pd.DataFrame(rows, columns=COLUMNS)
    numbers = [name for name in COLUMNS if name not in {"data set", "outcome", "tok/s"}]
    total = {"data set": "total", "outcome": "", "tok/s": ""} | table[numbers].sum().to_dict()
    return pd.concat([table, pd.DataFrame([total], columns=COLUMNS)], ignore_index=True)


def _row(name: str, value: Mapping[str, Any] | None, budget: int) -> dict[str, Any]:
    if value is None:
        return dict.fromkeys(COLUMNS, 0) | {"data set": name, "outcome": "not finished", "budget": budget, "tok/s": ""}
    result = GenerateResult.model_validate(value)
    return {
        "data set": name,
        "outcome": result.outcome,
        "budget": result.budget_tokens,
        "tokens": result.completion_tokens,
        "new tokens": result.new_tokens,
        "resumed": result.resumed_tokens,
        "prompt tokens": result.prompt_tokens,
        "responses": result.responses,
        "stop": result.finish_reasons.get("stop", 0),
        "length": result.finish_reasons.get("length", 0),
        "tok/s": f"{result.tokens_per_s:,.0f}" if result.new_tokens else "",
    }


def troubles(states: Mapping[str, str], order: Order | None) -> list[str]:
    """Tasks that did not end well, by the name of their data set. `states` is task id, or task id and `_index`, to state."""
    names = order.plan.names if order else []
    found = []
    for task, state in sorted(states.items()):
        if state in GOOD or state == "upstream_failed":
            continue
        base, _, index = task.rpartition("_")
        if base.startswith("dataset.") and index.isdigit():
            name = names[int(index)] if int(index) < len(names) else index
            found.append(f"{base.removeprefix('dataset.')} of {name} ({state})")
        else:
            found.append(f"{task} ({state})")
    return found


def report(ti: Any) -> dict[str, Any]:
    """The totals of a run: logged as a table, stored as XCom, returned.

    Raises AirflowFailException where any task has failed, so that the run cannot be green whatever was merged.
    """
    order = pull_order(ti)
    states = {name: state for name, state in ti.get_task_states(ti.dag_id, run_ids=[ti.run_id])[ti.run_id].items() if name != ti.task_id}
    failed = troubles(states, order)
    if order is None:
        raise AirflowFailException("nothing was planned; the log of `plan` says why")
    if order.dry_run:
        value: dict[str, Any] = {"headline": "draftmill: dry run, nothing was started", "totals": []}
    else:
        table = totals(order, pull_results(ti, "dataset.generate"))
        log.info("\n%s", show(table))
        value = {"headline": headline(table, failed), "totals": table.to_dict("records")}
    log.info(value["headline"])
    ti.xcom_push(key="return_value", value=value)
    if failed:
        raise AirflowFailException(f"the run is not complete: {'; '.join(failed)}; clear what failed to try it again")
    return value


def headline(table: pd.DataFrame, failed: Sequence[str]) -> str:
    """A run in one line."""
    total = table.iloc[-1]
    text = f"draftmill: {total['tokens']:,} tokens in {total['responses']:,} responses, {total['new tokens']:,} of them new"
    if not failed and not total["new tokens"]:
        return f"{text}; nothing was left to generate"
    return f"{text}; failed: {', '.join(failed)}" if failed else text


def asset_extra(order: Order, merged: Mapping[str, Any]) -> dict[str, Any]:
    """What the event of a new corpus tells those who are waiting for it. JSON-ready."""
    result = MergeResult.model_validate(merged)
    return {
        "campaign": order.plan.campaign,
        "connection": order.conn_id,
        "path": result.train,
        "manifest": result.manifest,
        "manifest_sha256": result.manifest_sha256,
        "rows": result.rows,
        "held_out_rows": result.held_out_rows,
        "loss_tokens": result.loss_tokens,
        "total_tokens": result.total_tokens,
        "datasets": dict(result.datasets),
    }


def already_published(events: Sequence[Any], extra: Mapping[str, Any]) -> bool:
    """Whether the campaign's last event of the asset told of this very corpus. Other campaigns, and other hosts, have events between."""
    for event in reversed(events):
        told = event.extra or {}
        if (told.get("campaign"), told.get("connection")) == (extra["campaign"], extra["connection"]):
            return bool(told.get("manifest_sha256") == extra["manifest_sha256"])
    return False
