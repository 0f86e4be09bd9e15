"""One data set: where its rows come from, which schema they have, and what is known about its answers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from draftmill.spec.base import Name, SafePath, Strict

LengthClass = Literal["short", "long"]
Turns = Literal["first", "last", "all"]
GENERIC_COLUMNS = ("messages", "prompt", "system", "tools", "role", "content")
"""What `columns` may name: the column of a list of messages or of a single prompt, further columns, and the keys inside a message."""


def fault_in_columns(columns: dict[str, str]) -> str | None:
    """Why the generic adapter cannot work with `columns`; None where it can."""
    unknown = sorted(set(columns) - set(GENERIC_COLUMNS))
    if unknown:
        return f"{', '.join(unknown)} is unknown; adapter generic takes the keys {', '.join(GENERIC_COLUMNS)}"
    if ("messages" in columns) == ("prompt" in columns):
        return "adapter generic needs either 'messages' or 'prompt'"
    return None


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

    @model_validator(mode="after")
    def _columns_fit_the_adapter(self) -> DatasetSpec:
        adapters = {self.adapter, *(source.adapter for source in self.sources if source.adapter)}
        if "generic" not in adapters:
            if self.columns:
                raise ValueError(f"'columns' is for adapter generic; adapter {self.adapter} knows its columns")
        elif (fault := fault_in_columns(self.columns)) is not None:
            raise ValueError(f"'columns': {fault}")
        return self
