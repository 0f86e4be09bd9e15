"""Counts and switches as people and forms write them, understood the same way in a run's parameters and in a campaign file."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, Field

_SUFFIX = {"": 0, "k": 3, "m": 6, "g": 9, "b": 9}
_COUNT = re.compile(
    r"(?P<whole>[+-]?(?:[0-9]+|[0-9]{1,3}(?:(?P<mark>[_,])[0-9]{3})(?:(?P=mark)[0-9]{3})*))"
    r"(?P<part>\.[0-9]+)?(?:e(?P<power>[0-9]{1,2}))?\s*(?P<suffix>[kmgb]?)"
)
_LONGEST = 28
"""Characters; as many digits as decimal arithmetic keeps exactly."""

MOST = 10**12
"""No count is larger: a number beyond it is a slip of the keyboard, and some readers of JSON keep no more than 64 bits."""


def parse_count(value: object) -> object:
    """A count as people write it: 10000000, 1e7, "10M", "10_000", "10,000", "2.5k", 10.0. None and "" mean "not given".

    Text is read exactly, without floating point. `,` and `_` only group thousands, and a decimal point needs a suffix or an exponent:
    "1,5M" and "1.000" mean different numbers to different people, so they are refused. What cannot be meant as a whole number is
    handed on, for the model to refuse with its field's name.
    """
    if isinstance(value, bool):
        raise ValueError("must be a whole number")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        return _count_of(value.strip().lower()) if value.strip() else None
    return value


def _count_of(text: str) -> int:
    match = _COUNT.fullmatch(text) if len(text) <= _LONGEST else None
    if match:
        plain = not match["power"] and not match["suffix"]
        if not (plain and match["part"] and match["part"] not in {".0", ".00"}):
            digits = Decimal(re.sub("[_,]", "", match["whole"]) + (match["part"] or ""))
            number = digits.scaleb(int(match["power"] or 0) + _SUFFIX[match["suffix"]])
            if number == number.to_integral_value():
                return int(number)
    raise ValueError("must be a whole number such as 10000000 or 10M")


def parse_switch(value: object) -> object:
    """A yes or no as it arrives: true, "true", "False". "" means "not given"; what is neither is handed on, for the model to refuse."""
    if isinstance(value, str):
        return {"true": True, "false": False, "": None}.get(value.strip().lower(), value)
    return value


PositiveInt = Annotated[int, Field(gt=0, le=MOST)]
Count = Annotated[PositiveInt, BeforeValidator(parse_count)]
OptionalCount = Annotated[PositiveInt | None, BeforeValidator(parse_count)]
Switch = Annotated[bool, BeforeValidator(parse_switch)]
OptionalSwitch = Annotated[bool | None, BeforeValidator(parse_switch)]
