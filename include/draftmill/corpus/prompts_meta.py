"""What the prompts file says about itself, as far as the corpus needs it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from draftmill.errors import PermanentError
from draftmill.files import read_json
from draftmill.layout import CampaignFolder
from draftmill.spec.load import describe


class PromptsMeta(BaseModel):
    """The file beside the prompts. `sha256` is of the prompts file; token ids lie in [0, vocab_size)."""

    model_config = ConfigDict(extra="allow", frozen=True)

    sha256: str
    vocab_size: int = Field(gt=0)
    tokenizer_hash: str
    template_hash: str
    transformers: str = ""
    model_path: str = ""
    eos_token_ids: list[int] = Field(default_factory=list)
    special_token_ids: list[int] = Field(default_factory=list)
    think_ids: dict[str, int] = Field(default_factory=dict)
    sources: list[dict[str, Any]] = Field(default_factory=list)

    @property
    def model(self) -> dict[str, Any]:
        """What rows of one corpus must have in common."""
        return {"tokenizer_hash": self.tokenizer_hash, "template_hash": self.template_hash, "vocab_size": self.vocab_size}


def read_prompts_meta(folder: CampaignFolder, dataset: str) -> PromptsMeta:
    """The meta file of a data set's prompts. PermanentError where it is absent or lacks a field."""
    path = folder.prompts_meta(dataset)
    value = read_json(path)
    if value is None:
        raise PermanentError(f"{path}: no such file, or not whole; prepare {dataset} first")
    try:
        return PromptsMeta.model_validate(value)
    except ValidationError as error:
        raise PermanentError(f"{path}: {describe(error)}; prepare {dataset} again") from None
