"""Registers with Airflow what draftmill adds to its pages: the links from a task to the campaign's files, and the note of a run."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from draftmill_airflow import run_note
from draftmill_airflow.links import CampaignFolderLink, JournalLink


class DraftmillPlugin(AirflowPlugin):
    """One plugin for all of draftmill."""

    name = "draftmill"
    operator_extra_links = [CampaignFolderLink(), JournalLink()]  # noqa: RUF012 - the name and type that Airflow reads
    listeners = [run_note]  # noqa: RUF012
