"""What a run may change about its campaign, checked the same way from the form, the API, the command line and a schedule."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, field_validator

from draftmill.errors import PermanentError
from draftmill.spec.base import Name, Strict
from draftmill.spec.load import describe

_SUFFIX = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}


def parse_count(value: object) -> object:
    """A count as people write it: 10000000, 1e7, "10M", "10_000", "2.5k", 10.0. None and "" mean "not given".

    What cannot be meant as a whole number is handed on, for the model to refuse with its field's name.
    """
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        raise ValueError("must be a whole number")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]{1,2})?)\s*([kmgb]?)", value.strip().lower().replace("_", "").replace(",", ""))
        if match:
            number = float(match[1]) * _SUFFIX[match[2]]
            if number.is_integer():
                return int(number)
        raise ValueError("must be a whole number such as 10000000 or 10M")
    return value


def parse_switch(value: object) -> object:
    """A yes or no as it arrives: true, "true", "False". "" means "not given"; what is neither is handed on, for the model to refuse."""
    if isinstance(value, str):
        return {"true": True, "false": False, "": None}.get(value.strip().lower(), value)
    return value


Switch = Annotated[bool | None, BeforeValidator(parse_switch)]
Count = Annotated[Annotated[int, Field(gt=0)] | None, BeforeValidator(parse_count)]


class RunParams(Strict):
    """The parameters of one run. None means: as the campaign file says."""

    campaign: Name
    datasets: tuple[Name, ...] | None = Field(None, min_length=1)
    tokens_per_dataset: Count = None
    max_samples: Count = None
    server: Name | None = None
    datasets_at_once: Count = None
    merge_partial: Switch = None
    dry_run: Switch = None

    @field_validator("datasets", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        if value in (None, [], ()):
            return None
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        return tuple(value) if isinstance(value, list) else value

    @field_validator("datasets")
    @classmethod
    def _unique(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        doubled = sorted({name for name in value or () if (value or ()).count(name) > 1})
        if doubled:
            raise ValueError(f"names {', '.join(doubled)} more than once")
        return value


def parse_params(values: dict[str, Any]) -> RunParams:
    """Check run parameters. PermanentError names the field and the reason."""
    try:
        return RunParams.model_validate(values)
    except ValidationError as error:
        raise PermanentError(f"parameter {describe(error)}") from None
