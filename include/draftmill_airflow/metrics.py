"""Numbers for Airflow's own metrics (StatsD or OpenTelemetry, whichever the deployment has switched on; nothing otherwise)."""

from __future__ import annotations

from typing import Any

from airflow.sdk.observability.stats import gauge, incr


def count_result(verb: str, result: dict[str, Any]) -> None:
    """`draftmill.tokens` and `draftmill.responses` count what was newly generated; `draftmill.tokens_per_s` is the last rate."""
    if verb != "generate":
        return
    tags = {"dataset": str(result.get("dataset"))}
    incr("draftmill.tokens", int(result.get("new_tokens", 0)), tags=tags)
    incr("draftmill.responses", int(result.get("new_responses", 0)), tags=tags)
    if result.get("new_tokens"):
        gauge("draftmill.tokens_per_s", float(result.get("tokens_per_s", 0.0)), tags=tags)


def gauge_progress(dataset: str | None, progress: dict[str, Any] | None) -> None:
    """`draftmill.running.tokens_per_s` and `draftmill.running.in_flight` of a job that is at work; for code that runs in the triggerer."""
    from airflow.observability.stats import gauge  # a task's own metrics, above, are not set up there

    for name in ("tokens_per_s", "in_flight"):
        value = (progress or {}).get(name)
        if isinstance(value, int | float):
            gauge(f"draftmill.running.{name}", float(value), tags={"dataset": str(dataset)})
