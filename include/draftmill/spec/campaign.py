"""A campaign file: data sets, budgets, model, sampling, server."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from draftmill.spec.base import Name, Strict
from draftmill.spec.dataset import LengthClass, Source, Turns
from draftmill.spec.policy import CorpusPolicy, QualityPolicy
from draftmill.spec.values import Count, OptionalCount, Switch


class Sampling(Strict):
    """Sampling parameters, under SGLang's names, as they are sent with every request."""

    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int | None = Field(None, ge=1)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0)
    frequency_penalty: float | None = None
    presence_penalty: float | None = None


class ClassLimits(Strict):
    """Limits of a length class. `in_flight` is a ceiling on requests outstanding; `auto` leaves it to pace."""

    in_flight: int | Literal["auto"] = "auto"
    max_new_tokens: Count

    @model_validator(mode="after")
    def _positive(self) -> ClassLimits:
        if self.in_flight != "auto" and self.in_flight < 1:
            raise ValueError("'in_flight' must be 'auto' or at least 1")
        return self


class CampaignDataset(Strict):
    """A data set's part in a campaign; what is None is taken from the campaign or from datasets.yaml."""

    name: Name
    budget_tokens: OptionalCount = None
    max_samples: OptionalCount = Field(None, description="Stop after this many responses even below the budget.")
    max_prompts: OptionalCount = Field(None, description="Prepare at most this many prompts, in seeded order.")
    sources: tuple[Source, ...] | None = None
    turns: Turns | None = None
    max_prompt_tokens: OptionalCount = None


class CampaignSpec(Strict):
    """A campaign file. Budgets are in completion tokens; counts may be written as in the trigger form, 10M for example."""

    name: Name
    description: str = ""
    ssh_conn_id: Name = "gpu_host"
    server: Name
    seed: int = Field(0, ge=0, lt=2**63)
    schedule: str | None = Field(None, description="Cron expression or preset; None runs only when triggered.")
    datasets_at_once: Count = 2
    tokens_per_dataset: Count
    datasets: tuple[CampaignDataset, ...] = Field(min_length=1)
    classes: dict[LengthClass, ClassLimits]
    sampling: Sampling = Sampling()
    special_token_text: Literal["plain", "skip"] = Field("plain", description="User text that spells a control token.")
    quality: QualityPolicy = QualityPolicy()
    corpus: CorpusPolicy = CorpusPolicy()
    merge_partial: Switch = Field(False, description="Merge the finished data sets although others failed.")

    @model_validator(mode="after")
    def _unique_names(self) -> CampaignSpec:
        names = [entry.name for entry in self.datasets]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(f"'datasets' names {', '.join(doubled)} more than once")
        return self
