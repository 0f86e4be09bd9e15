"""The step `survey`: what is on disk for each data set of the plan, and how much is left. Reads only."""

from __future__ import annotations

from typing import Any

from draftmill.files import read_json
from draftmill.generation.scan import scan
from draftmill.generation.summary import outcome_on_disk
from draftmill.jobs.detached import DetachedProcess
from draftmill.jobs.step import StepContext
from draftmill.layout import CampaignFolder
from draftmill.spec.plan import DatasetPlan


def run(ctx: StepContext) -> dict[str, Any]:
    """For each data set: tokens and responses in its journal, tokens left, prompts prepared (None: not yet), and whether it is met.

    met: the budget is reached within its tolerance, or the prompts are exhausted, or max_samples is reached. `outcome` says which.
    """
    rows = []
    for dataset in ctx.plan.datasets:
        ctx.check_stop()
        row = survey_dataset(ctx.folder, dataset)
        rows.append(row)
        ctx.progress(f"{dataset.name}: {row['on_disk_tokens']:,} of {row['budget_tokens']:,} tokens, {row['responses']:,} responses")
    names = ("budget_tokens", "on_disk_tokens", "left_tokens", "responses")
    totals = {name: sum(row[name] for row in rows) for name in names}
    return {"campaign": ctx.plan.campaign, "datasets": rows, "totals": totals | {"met": sum(row["met"] for row in rows)}}


def survey_dataset(folder: CampaignFolder, dataset: DatasetPlan) -> dict[str, Any]:
    """The row of one data set."""
    index = scan(folder.journal(dataset.name))
    meta = read_json(folder.prompts_meta(dataset.name))
    outcome = outcome_on_disk(folder, dataset, index)
    return {
        "name": dataset.name,
        "budget_tokens": dataset.budget_tokens,
        "on_disk_tokens": index.completion_tokens,
        "left_tokens": 0 if outcome else max(0, dataset.budget_tokens - index.completion_tokens),
        "responses": index.responses,
        "prompts": meta.get("prompts") if isinstance(meta, dict) else None,
        "met": outcome is not None,
        "outcome": outcome,
        "unreadable": len(index.unreadable) + (index.torn is not None),
        "tokens_per_s": last_rate(folder, dataset.name),
    }


def last_rate(folder: CampaignFolder, dataset: str) -> float | None:
    """Tokens per second of the last generate job that generated anything; None where none has ended, or it had nothing to do."""
    ended = (DetachedProcess(folder.job("generate", dataset)).read_state().result or {}).get("result") or {}
    return float(ended["tokens_per_s"]) if ended.get("new_tokens") else None
