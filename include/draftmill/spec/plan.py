"""The plan of one run: a campaign with everything resolved, as it is sent to the host.

A plan is self-contained JSON: no step on the host reads a configuration file. Steps that work on one data set get a plan narrowed to it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from draftmill.spec.base import Name, Strict
from draftmill.spec.campaign import Sampling
from draftmill.spec.dataset import LengthClass, Source, Turns
from draftmill.spec.policy import CorpusPolicy, QualityPolicy
from draftmill.spec.server import NamedServer


class PromptOrigin(Strict):
    """What decides which prompts a data set can have: enough for the data sets after it to leave those prompts out."""

    name: Name
    sources: tuple[Source, ...]
    adapter: Name
    columns: dict[str, str] = Field(default_factory=dict)
    turns: Turns = "first"


class DatasetPlan(Strict):
    """One data set of a run, with its limits. Token counts are completion tokens unless named otherwise."""

    name: Name
    sources: tuple[Source, ...]
    adapter: Name
    columns: dict[str, str] = Field(default_factory=dict)
    turns: Turns = "first"
    length_class: LengthClass
    licence: str
    licence_contested: bool = False
    expected_tokens: int
    budget_tokens: int = Field(gt=0)
    max_samples: int | None = None
    max_prompts: int | None = None
    max_prompt_tokens: int | None = None
    max_new_tokens: int = Field(gt=0)
    in_flight: int | Literal["auto"] = "auto"

    @property
    def origin(self) -> PromptOrigin:
        """Where its prompts come from."""
        return PromptOrigin(**{field: getattr(self, field) for field in PromptOrigin.model_fields})


class Plan(Strict):
    """A resolved campaign. `datasets` is in work order: longest expected answers first."""

    campaign: Name
    description: str = ""
    seed: int
    server: NamedServer
    sampling: Sampling
    special_token_text: Literal["plain", "skip"]
    datasets: tuple[DatasetPlan, ...] = Field(min_length=1)
    datasets_at_once: int
    quality: QualityPolicy
    corpus: CorpusPolicy
    merge_partial: bool = False
    earlier: tuple[PromptOrigin, ...] = Field((), description="Of a narrowed plan: the data sets before it, whose prompts it leaves out.")

    @field_validator("datasets")
    @classmethod
    def _unique(cls, value: tuple[DatasetPlan, ...]) -> tuple[DatasetPlan, ...]:
        names = [entry.name for entry in value]
        if len(set(names)) != len(names):
            raise ValueError("a data set is named more than once")
        return value

    @property
    def names(self) -> list[str]:
        """Data-set names in work order."""
        return [entry.name for entry in self.datasets]

    def dataset(self, name: str) -> DatasetPlan:
        """The entry called `name`; KeyError where the plan has none."""
        for entry in self.datasets:
            if entry.name == name:
                return entry
        raise KeyError(name)

    def only(self, name: str, *, keep_earlier: bool = False) -> Plan:
        """This plan narrowed to one data set, so that a change to another one does not change the request.

        keep_earlier: for the step that chooses prompts, which leaves out those of the data sets before this one.
        """
        return self.model_copy(update={"datasets": (self.dataset(name),), "earlier": self.before(name) if keep_earlier else ()})

    def before(self, name: str) -> tuple[PromptOrigin, ...]:
        """The data sets that come before `name`. A prompt that several data sets have belongs to the first of them."""
        return self.earlier + tuple(entry.origin for entry in self.datasets[: self.names.index(name)])
