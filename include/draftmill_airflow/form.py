"""The parameters of a run as the trigger form shows them.

Their schemas let every value through: what a run may ask for is checked in one place, by `plan`, which says in one sentence what is
wrong. So the form, the API, the command line and a schedule accept and refuse the same values, "10M" and an empty field among them.
Airflow's own refusal would be a page about the schema.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from draftmill.spec.campaign import CampaignSpec
from draftmill.spec.load import Config
from draftmill_airflow.hosts import campaigns_on

_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")


def _shown_as(kind: str) -> list[str]:
    """All types, `kind` first.

    With `examples`, the form goes by the first type alone: a line of text, in which 10M can be typed, a switch, or a list to choose from.
    Without them, a value of several types gets a box of six lines.
    """
    return [kind, *(other for other in _TYPES if other != kind)]


def form(config: Config, campaign: CampaignSpec) -> dict[str, Any]:
    """Params of the DAG of the campaign's host. Choices are offered (`examples`), not enforced."""
    what, how_much, where = "What", "How much", "Where and how"
    names = [entry.name for entry in campaign.datasets]
    return {
        "campaign": Param(
            campaign.name,
            type=_shown_as("string"),
            title="Campaign",
            description="A campaign file of this DAG's host. A run continues what the campaign already has on the host.",
            examples=campaigns_on(config, campaign.ssh_conn_id),
            section=what,
        ),
        "datasets": Param(
            [],
            type=_shown_as("array"),
            title="Data sets",
            description="Data sets of the campaign. None chosen: all of them.",
            examples=names,
            section=what,
        ),
        "dry_run": Param(
            False,
            type=_shown_as("boolean"),
            examples=[True, False],
            title="Dry run",
            description="Plan, check the host and show the table; start no server and generate nothing.",
            section=what,
        ),
        "tokens_per_dataset": Param(
            None,
            type=_shown_as("string"),
            title="Tokens per data set",
            description=f"Budget of completion tokens, such as 10M; what is on disk counts. Empty: {campaign.tokens_per_dataset:,}.",
            examples=["100k", "1M", "10M"],
            section=how_much,
        ),
        "max_samples": Param(
            None,
            type=_shown_as("string"),
            title="Max samples",
            description="Stop a data set after this many responses even below its budget. Empty: no limit but the campaign's.",
            examples=["1000", "10000"],
            section=how_much,
        ),
        "server": Param(
            None,
            type=_shown_as("string"),
            title="Server profile",
            description=f"A profile of servers.yaml. Empty: {campaign.server}.",
            examples=sorted(config.servers()),
            section=where,
        ),
        "datasets_at_once": Param(
            None,
            type=_shown_as("string"),
            title="Data sets at once",
            description=f"How many data sets may generate at the same time. Empty: {campaign.datasets_at_once}.",
            examples=["1", "2", "4"],
            section=where,
        ),
        "merge_partial": Param(
            None,
            type=_shown_as("boolean"),
            examples=[True, False],
            title="Merge although data sets failed",
            description="Merge what is finished even if a data set failed; the run fails all the same. Empty: as the campaign file says.",
            section=where,
        ),
    }
