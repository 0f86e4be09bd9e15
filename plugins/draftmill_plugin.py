"""What draftmill adds to Airflow: links from a task to the campaign's files, and what is written once a run has ended."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from draftmill_airflow import run_end
from draftmill_airflow.links import CampaignFolderLink, JournalLink


class DraftmillPlugin(AirflowPlugin):
    """One plugin for all of draftmill."""

    name = "draftmill"
    operator_extra_links = [CampaignFolderLink(), JournalLink()]  # noqa: RUF012 - the name and type that Airflow reads
    listeners = [run_end]  # noqa: RUF012
