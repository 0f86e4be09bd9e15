"""The common base of all configuration models, and the constrained types they share."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints


class Strict(BaseModel):
    """Unknown keys are errors, values are not guessed across types, and a loaded model never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _no_parent_folders(text: str) -> str:
    if ".." in PurePosixPath(text).parts:
        raise ValueError("must not contain '..'")
    if "\x00" in text or "\n" in text:
        raise ValueError("must not contain control characters")
    return text


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
"""A word that becomes part of a path or a key: letters, digits, `_` and `-`, at most 64 characters."""

SafePath = Annotated[str, StringConstraints(min_length=1, max_length=4096), AfterValidator(_no_parent_folders)]
"""A path of a configuration file: absolute, `~/...`, or relative to the workspace; never with `..`."""
