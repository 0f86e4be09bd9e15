"""How the last run of a data set ended in order, kept beside its journal.

Whether a budget is reached can be read from the journal alone. That the prompts were exhausted cannot: some may be unfit to be sent,
and conversations have as many turns as the model lets them have. So the run that found nothing left says so here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from draftmill.files import read_json, write_json
from draftmill.generation.ledger import missing_is_settled
from draftmill.layout import CampaignFolder
from draftmill.spec.plan import DatasetPlan
from draftmill.spec.results import Outcome


def summary_file(journal: Path) -> Path:
    """The summary of the journal at `journal`."""
    return journal.with_suffix(".summary.json")


def write_summary(folder: CampaignFolder, dataset: DatasetPlan, result: dict[str, Any]) -> None:
    """Keep `result`, together with which prompts and limits it is about."""
    value = {"result": result, "prompts_sha256": _prompts(folder, dataset.name), "max_new_tokens": dataset.max_new_tokens}
    write_json(summary_file(folder.journal(dataset.name)), value)


class Totals(Protocol):
    """What a journal holds in all, as its index or whoever has read it knows."""

    @property
    def responses(self) -> int:
        """How many responses there are."""

    @property
    def completion_tokens(self) -> int:
        """The tokens of all of them."""


def outcome_on_disk(folder: CampaignFolder, dataset: DatasetPlan, index: Totals) -> Outcome | None:
    """What the files say has been reached; None where there is work left, or where only a run can tell."""
    mean = index.completion_tokens / index.responses if index.responses else float(dataset.expected_tokens)
    if index.responses and missing_is_settled(dataset.budget_tokens, index.completion_tokens, mean):
        return "budget_reached"
    if dataset.max_samples is not None and index.responses >= dataset.max_samples:
        return "max_samples"
    summary = read_json(summary_file(folder.journal(dataset.name)))
    if not isinstance(summary, dict) or not isinstance(summary.get("result"), dict):
        return None
    same_prompts = summary.get("prompts_sha256") is not None and summary["prompts_sha256"] == _prompts(folder, dataset.name)
    same_work = same_prompts and summary.get("max_new_tokens") == dataset.max_new_tokens
    result = summary["result"]
    if same_work and result.get("outcome") == "exhausted" and index.responses >= result.get("responses", 0):
        return "exhausted"
    return None


def _prompts(folder: CampaignFolder, dataset: str) -> str | None:
    meta = read_json(folder.prompts_meta(dataset))
    value = meta.get("sha256") if isinstance(meta, dict) else None
    return value if isinstance(value, str) else None
