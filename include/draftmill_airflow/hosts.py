"""One DAG for each host.

Airflow has no limit that counts runs by host and goes on counting while their tasks are deferred, except the limit on a DAG's own runs.
So each host has a DAG of its own that has one run at a time: runs on one host wait for each other, and those on two hosts do not.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowTimetableInvalid

import draftmill
from draftmill.errors import PermanentError
from draftmill.spec.campaign import CampaignSpec
from draftmill.spec.load import Config

DAG_ID = "generate_drafter_data"
"""The DAG of the first host. That of another host has the host's connection added: generate_drafter_data__gpu_b."""

VARIABLE = "DRAFTMILL_CAMPAIGN"


@dataclass(frozen=True)
class HostDag:
    """A host's DAG. `campaign` is the one that its schedule runs and its form starts from."""

    dag_id: str
    campaign: CampaignSpec

    @property
    def conn_id(self) -> str:
        """The Airflow connection of the host."""
        return self.campaign.ssh_conn_id


def configuration() -> Config:
    """The configuration folder: DRAFTMILL_CONFIG, or `config` beside the packages."""
    beside = Path(draftmill.__file__).parent.parent / "config"
    return Config(Path(os.environ.get("DRAFTMILL_CONFIG") or beside))


def host_dags(config: Config) -> list[HostDag]:
    """The DAGs that there are: one for each campaign of DRAFTMILL_CAMPAIGN, a list separated by commas; synth_100k where it is empty.

    Raises PermanentError where one is no campaign file, or two of them are on one host.
    """
    names = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()] or ["synth_100k"]
    found: dict[str, HostDag] = {}
    for name in names:
        campaign = config.campaign(name)
        conn_id = campaign.ssh_conn_id
        if conn_id in found:
            raise PermanentError(
                f"{VARIABLE}: {found[conn_id].campaign.name} and {name} are both on host {conn_id}; name one campaign for each host"
            )
        _check_schedule(config, campaign)
        found[conn_id] = HostDag(f"{DAG_ID}__{conn_id}" if found else DAG_ID, campaign)
    return list(found.values())


def _check_schedule(config: Config, campaign: CampaignSpec) -> None:
    """Airflow would refuse a wrong schedule without a word of where it stands."""
    try:
        DAG("schedule", schedule=campaign.schedule).timetable.validate()
    except AirflowTimetableInvalid as error:
        path = config.folder / "campaigns" / f"{campaign.name}.yaml"
        raise PermanentError(
            f"{path}: schedule: {campaign.schedule!r} is neither a cron expression nor a preset such as @daily ({error})"
        ) from None


def is_ours(dag_id: str) -> bool:
    """Whether a DAG is one of draftmill's."""
    return dag_id == DAG_ID or dag_id.startswith(f"{DAG_ID}__")


def require_own_host(config: Config, dag: HostDag, campaign: CampaignSpec) -> None:
    """PermanentError where the campaign is on another host than the DAG: two DAGs would then work on that host at the same time."""
    conn_id = campaign.ssh_conn_id
    if conn_id == dag.conn_id:
        return
    there = [other.dag_id for other in host_dags(config) if other.conn_id == conn_id]
    remedy = f"trigger {there[0]}" if there else f"add a campaign of that host to {VARIABLE}, which makes a DAG for it"
    mine = f"parameter campaign: {campaign.name} is on host {conn_id}, but this DAG works on {dag.conn_id} alone"
    raise PermanentError(f"{mine}; {remedy}")


def campaigns_on(config: Config, conn_id: str) -> list[str]:
    """Names of the campaign files of a host. One that cannot be read is among them: whoever chooses it is told what is wrong with it."""
    return [name for name in config.campaign_names() if _may_be_on(config, name, conn_id)]


def _may_be_on(config: Config, name: str, conn_id: str) -> bool:
    try:
        return config.campaign(name).ssh_conn_id == conn_id
    except PermanentError:
        return True
