"""One data set: where its rows come from, which schema they have, and what is known about its answers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from draftmill.spec.base import Name, SafePath, Strict

LengthClass = Literal["short", "long"]
Turns = Literal["first", "last", "all"]


class Source(Strict):
    """One origin of rows: a hub data set, or local files below the workspace (or at an absolute path)."""

    hub: str | None = Field(None, pattern=r"^[\w.-]+/[\w.-]+$", description="Hub id, `owner/name`.")
    path: SafePath | None = Field(None, description="A file, a folder or a glob of JSON, JSONL or Parquet files.")
    subset: str | None = Field(None, description="The hub's configuration name.")
    split: str = "train"
    revision: str = Field("main", description="Branch, tag or commit; the commit it meant is recorded.")
    adapter: Name | None = Field(None, description="Overrides the data set's adapter for this source.")

    @model_validator(mode="after")
    def _one_origin(self) -> Source:
        if (self.hub is None) == (self.path is None):
            raise ValueError("give either 'hub' or 'path', not both and not neither")
        return self


class DatasetSpec(Strict):
    """An entry of datasets.yaml. `expected_tokens` is the mean completion length, in tokens, that planning starts from."""

    title: str = ""
    sources: tuple[Source, ...] = Field(min_length=1)
    adapter: Name
    columns: dict[str, str] = Field(default_factory=dict, description="Column names for the generic adapter.")
    length_class: LengthClass
    licence: str
    licence_contested: bool = False
    expected_tokens: int = Field(gt=0)
    turns: Turns = "first"
    max_prompt_tokens: int | None = Field(None, gt=0)
