"""What a run may change about its campaign, checked the same way from the form, the API, the command line and a schedule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator

from draftmill.errors import PermanentError
from draftmill.spec.base import Name, Strict
from draftmill.spec.load import describe
from draftmill.spec.values import OptionalCount, OptionalSwitch


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


class RunParams(Strict):
    """The parameters of one run. None, as an empty field means too: as the campaign file says."""

    campaign: Name
    datasets: tuple[Name, ...] | None = Field(None, min_length=1)
    tokens_per_dataset: OptionalCount = None
    max_samples: OptionalCount = None
    server: Name | None = None
    datasets_at_once: OptionalCount = None
    merge_partial: OptionalSwitch = None
    dry_run: OptionalSwitch = None

    @model_validator(mode="before")
    @classmethod
    def _an_empty_field_is_not_given(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return {name: value for name, value in values.items() if not (name in cls.model_fields and _is_blank(value))}

    @field_validator("datasets", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        if isinstance(value, str):
            value = re.split(r"[,\s]+", value.strip(", \t\r\n"))
        if value in ([], (), [""]):
            return None
        return tuple(value) if isinstance(value, list) else value

    @field_validator("datasets")
    @classmethod
    def _unique(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        doubled = sorted({name for name in value or () if (value or ()).count(name) > 1})
        if doubled:
            raise ValueError(f"names {', '.join(doubled)} more than once")
        return value


def parse_params(values: Mapping[str, Any], campaign: str | None = None) -> RunParams:
    """Check run parameters. `campaign` is taken where they name none. PermanentError names the field and the reason."""
    given = dict(values)
    if campaign is not None and _is_blank(given.get("campaign")):
        given["campaign"] = campaign
    try:
        return RunParams.model_validate(given)
    except ValidationError as error:
        raise PermanentError(f"parameter {describe(error)}") from None
