"""Campaign file + run parameters -> plan."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TypeVar

from pydantic import ValidationError

from draftmill.errors import PermanentError
from draftmill.spec.campaign import CampaignDataset, CampaignSpec
from draftmill.spec.dataset import DatasetSpec
from draftmill.spec.load import Config, describe
from draftmill.spec.params import RunParams
from draftmill.spec.plan import DatasetPlan, Plan
from draftmill.spec.server import NamedServer

Entry = TypeVar("Entry")


def _known(table: dict[str, Entry], name: str, field: str) -> Entry:
    if name not in table:
        near = get_close_matches(name, table, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(table))}"
        raise PermanentError(f"{field}: {name!r} is unknown; {hint}")
    return table[name]


def _dataset_plan(campaign: CampaignSpec, entry: CampaignDataset, spec: DatasetSpec, params: RunParams) -> DatasetPlan:
    if spec.length_class not in campaign.classes:
        raise PermanentError(f"classes: campaign {campaign.name} has no limits for class {spec.length_class!r}, which {entry.name} needs")
    limits = campaign.classes[spec.length_class]
    return DatasetPlan(
        name=entry.name,
        sources=entry.sources or spec.sources,
        adapter=spec.adapter,
        columns=spec.columns,
        turns=entry.turns or spec.turns,
        length_class=spec.length_class,
        licence=spec.licence,
        licence_contested=spec.licence_contested,
        expected_tokens=spec.expected_tokens,
        budget_tokens=params.tokens_per_dataset or entry.budget_tokens or campaign.tokens_per_dataset,
        max_samples=params.max_samples or entry.max_samples,
        max_prompts=entry.max_prompts,
        max_prompt_tokens=entry.max_prompt_tokens or spec.max_prompt_tokens,
        max_new_tokens=limits.max_new_tokens,
        in_flight=limits.in_flight,
    )


def build_plan(config: Config, params: RunParams) -> Plan:
    """Resolve a run. Longest expected answers come first, so that the campaign's own tail is short.

    Raises PermanentError with the field and the reason: unknown campaign, data set or server profile.
    """
    campaign = config.campaign(params.campaign)
    known = config.datasets()
    entries = {entry.name: entry for entry in campaign.datasets}
    for name in entries:
        _known(known, name, f"{config.folder}/campaigns/{campaign.name}.yaml: datasets")
    for name in params.datasets or ():
        _known(entries, name, "parameter datasets")
    chosen = [entries[name] for name in params.datasets or entries]
    field = "parameter server" if params.server else f"{config.folder}/campaigns/{campaign.name}.yaml: server"
    server = params.server or campaign.server
    profile = _known(config.servers(), server, field)
    plans = [_dataset_plan(campaign, entry, known[entry.name], params) for entry in chosen]
    plans.sort(key=lambda plan: (-plan.expected_tokens, plan.name))
    merge_partial = campaign.merge_partial if params.merge_partial is None else params.merge_partial
    try:
        return Plan(
            campaign=campaign.name,
            description=campaign.description,
            seed=campaign.seed,
            server=NamedServer(name=server, profile=profile),
            sampling=campaign.sampling,
            special_token_text=campaign.special_token_text,
            datasets=tuple(plans),
            datasets_at_once=params.datasets_at_once or campaign.datasets_at_once,
            quality=campaign.quality,
            corpus=campaign.corpus,
            merge_partial=merge_partial,
        )
    except ValidationError as error:
        raise PermanentError(f"campaign {campaign.name}: {describe(error)}") from None
