"""What `plan` hands to all other tasks: the resolved plan and where to carry it out."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from draftmill.jobs.models import JobKey
from draftmill.jobs.step import STEPS
from draftmill.layout import CampaignFolder, Workspace
from draftmill.spec.plan import Plan
from draftmill_airflow.errors import JobNeedsAPerson


class Order(BaseModel):
    """One run's work. It holds no secret: it is stored as XCom and shown in the user interface."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    conn_id: str
    dry_run: bool = False
    plan: Plan

    def narrowed(self, verb: str, dataset: str | None) -> Plan:
        """The plan a job gets: only its own data set's part, so that a change to another data set is no change of this job.

        Raises JobNeedsAPerson where the order has no such data set.
        """
        if not dataset:
            return self.plan
        if dataset not in self.plan.names:
            known = ", ".join(self.plan.names)
            raise JobNeedsAPerson(f"data set {dataset} is not in this run's order ({known}); clear `plan` to order again")
        return self.plan.only(dataset, keep_earlier=STEPS[verb].chooses_prompts)

    def key(self, verb: str, dataset: str | None) -> JobKey:
        """What the job of `verb` is found by."""
        return JobKey(campaign=self.plan.campaign, task=verb, dataset=dataset)

    def folder(self, workspace: str) -> CampaignFolder:
        """The campaign's folder on the host, below the workspace as the connection writes it: `~` is not expanded here."""
        return Workspace(Path(workspace)).campaign(self.plan.campaign)
