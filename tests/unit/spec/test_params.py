"""Run parameters: what people mean is understood, what is wrong is refused in a sentence with the field's name."""

from __future__ import annotations

import contextlib
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.errors import PermanentError
from draftmill.spec.campaign import CampaignSpec
from draftmill.spec.params import parse_params


@pytest.mark.parametrize(
    ("given_value", "meant"),
    [
        (None, None),
        ("", None),
        (10_000_000, 10_000_000),
        (1e7, 10_000_000),
        ("10M", 10_000_000),
        ("10 m", 10_000_000),
        ("2.5k", 2_500),
        ("10_000_000", 10_000_000),
        ("10,000,000", 10_000_000),
        ("1e7", 10_000_000),
        ("   ", None),
        (" 10M\n", 10_000_000),
        ("10,000k", 10_000_000),
        ("1.005M", 1_005_000),  # 1004999.9999999999 in floating point
        ("999999999999", 999_999_999_999),
        ("5.0", 5),
        (5.0, 5),
    ],
)
def test_counts_as_people_write_them(given_value: object, meant: int | None) -> None:
    assert parse_params({"campaign": "c", "tokens_per_dataset": given_value}).tokens_per_dataset == meant


@pytest.mark.parametrize(("given_value", "meant"), [(True, True), ("true", True), ("False", False), ("", None), (None, None)])
def test_switches_as_they_arrive(given_value: object, meant: bool | None) -> None:
    params = parse_params({"campaign": "c", "merge_partial": given_value, "dry_run": given_value})
    assert (params.merge_partial, params.dry_run) == (meant, meant)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"campaign": "x; touch /tmp/pwned"}, ["campaign", "pattern"]),
        ({"campaign": "../up"}, ["campaign"]),
        ({"campaign": "c", "tokens_per_dataset": 0}, ["tokens_per_dataset", "greater than 0"]),
        ({"campaign": "c", "tokens_per_dataset": "0"}, ["tokens_per_dataset", "greater than 0"]),
        ({"campaign": "c", "tokens_per_dataset": -1}, ["tokens_per_dataset", "greater than 0"]),
        ({"campaign": "c", "tokens_per_dataset": 1.5}, ["tokens_per_dataset", "integer"]),
        ({"campaign": "c", "tokens_per_dataset": "1.5"}, ["tokens_per_dataset", "whole number"]),
        ({"campaign": "c", "tokens_per_dataset": "lots"}, ["tokens_per_dataset", "whole number"]),
        ({"campaign": "c", "tokens_per_dataset": True}, ["tokens_per_dataset", "whole number"]),
        ({"campaign": "c", "tokens_per_dataset": float("inf")}, ["tokens_per_dataset"]),
        ({"campaign": "c", "tokens_per_dataset": float("nan")}, ["tokens_per_dataset"]),
        ({"campaign": "c", "tokens_per_dataset": 10**12 + 1}, ["tokens_per_dataset", "less than or equal to 1000000000000"]),
        ({"campaign": "c", "tokens_per_dataset": 10**400}, ["tokens_per_dataset"]),
        ({"campaign": "c", "tokens_per_dataset": "1e99"}, ["tokens_per_dataset", "less than or equal to"]),
        ({"campaign": "c", "tokens_per_dataset": "9" * 5000}, ["tokens_per_dataset", "whole number"]),
        ({"campaign": "c", "tokens_per_dataset": "-5M"}, ["tokens_per_dataset", "greater than 0"]),
        ({"campaign": "c", "tokens_per_dataset": "1,5M"}, ["tokens_per_dataset", "whole number"]),
        ({"campaign": "c", "tokens_per_dataset": "1.000"}, ["tokens_per_dataset", "whole number"]),
        ({"campaign": "c", "tokens_per_dataset": "1.0000000000000000000000000000001M"}, ["tokens_per_dataset", "whole number"]),
        ({"campaign": "c", "tokens_per_dataset": "10,00"}, ["tokens_per_dataset", "whole number"]),
        ({"campaign": "c", "tokens_per_dataset": "1,000_000"}, ["tokens_per_dataset", "whole number"]),
        ({"campaign": "c", "tokens_per_dataset": [10]}, ["tokens_per_dataset", "integer"]),
        ({"campaign": "c", "max_samples": {"n": 1}}, ["max_samples", "integer"]),
        ({"campaign": "c", "datasets_at_once": 0}, ["datasets_at_once", "greater than 0"]),
        ({"campaign": "c", "datasets": ["a", None]}, ["datasets.1", "string"]),
        ({"campaign": "c", "datasets": ["a", ""]}, ["datasets.1"]),
        ({"campaign": "c", "datasets": {"a": 1}}, ["datasets"]),
        ({"campaign": "c", "server": 8}, ["server", "string"]),
        ({"campaign": "c", "tokens_per_datset": None}, ["tokens_per_datset", "unknown key"]),
        ({"campaign": None}, ["campaign", "missing"]),
        ({"campaign": "c", "datasets": ["a", "a"]}, ["datasets", "a more than once"]),
        ({"campaign": "c", "datasets": ["a b"]}, ["datasets.0"]),
        ({"campaign": "c", "datasets": 5}, ["datasets"]),
        ({"campaign": "c", "budget": 5}, ["budget", "unknown key"]),
        ({"campaign": "c", "merge_partial": "perhaps"}, ["merge_partial", "boolean"]),
        ({"campaign": "c", "dry_run": 1}, ["dry_run", "boolean"]),
        ({}, ["campaign", "missing"]),
    ],
)
def test_refusals_name_the_field(values: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(PermanentError) as caught:
        parse_params(values)
    for word in words:
        assert word in str(caught.value)


def test_names_may_come_as_text() -> None:
    for text in ("a, b", "a b", "a\nb\n", ",a,,b,"):
        assert parse_params({"campaign": "c", "datasets": text}).datasets == ("a", "b")
    for nothing in ([], "", " ", ",", None):
        assert parse_params({"campaign": "c", "datasets": nothing}).datasets is None


def test_an_empty_field_means_the_campaign_of_the_dag() -> None:
    for nothing in (None, "", "  "):
        assert parse_params({"campaign": nothing, "server": nothing}, campaign="mine").campaign == "mine"
    assert parse_params({}, campaign="mine").campaign == "mine"
    assert parse_params({"campaign": "c"}, campaign="mine").campaign == "c"


def spellings(count: int) -> list[object]:
    """Ways to write a count that must all mean it."""
    found: list[object] = [count, float(count), str(count), f" {count} ", f"{count:,}", f"{count:_}", f"+{count}", f"{count}.0"]
    for power, letters in ((3, "kK"), (6, "mM"), (9, "gGbB")):
        for letter in letters:
            short = Decimal(count).scaleb(-power)
            found += [f"{short:f}{letter}", f"{short:f} {letter}"]
        found.append(f"{Decimal(count).scaleb(-power):f}e{power}")
    return found


@given(st.integers(1, 10**12))
def test_every_spelling_of_a_count_means_it(count: int) -> None:
    for spelling in spellings(count):
        assert parse_params({"campaign": "c", "max_samples": spelling}).max_samples == count, spelling


@given(st.integers(1, 10**12), st.data())
def test_a_campaign_file_reads_counts_as_the_form_does(count: int, data: st.DataObject) -> None:
    spelling = data.draw(st.sampled_from(spellings(count)))
    file = {"name": "c", "server": "s", "datasets": [{"name": "a", "budget_tokens": spelling}], "classes": {}}
    found = CampaignSpec.model_validate_json(json.dumps(file | {"tokens_per_dataset": spelling, "datasets_at_once": spelling}))
    assert found.tokens_per_dataset == found.datasets_at_once == found.datasets[0].budget_tokens == count


@given(st.text(alphabet="0123456789.,_+-eEkKmMgGbB ", max_size=12))
def test_text_is_a_count_only_where_it_reads_as_one(text: str) -> None:
    """Whatever is accepted has the value of its digits: grouping aside, it is what a decimal number of that text is."""
    try:
        found = parse_params({"campaign": "c", "max_samples": text}).max_samples
    except PermanentError:
        return
    if found is None:
        assert not text.strip()
        return
    bare = text.strip().lower().replace(",", "").replace("_", "").replace(" ", "")
    power = {"k": 3, "m": 6, "g": 9, "b": 9}.get(bare[-1], 0)
    assert found == Decimal(bare.rstrip("kmgb")).scaleb(power)


NAMES = ["campaign", "datasets", "tokens_per_dataset", "max_samples", "server", "datasets_at_once", "merge_partial", "dry_run"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.sampled_from(NAMES) | st.text(st.characters(codec=None)), JSON))
def test_any_json_is_understood_or_refused_in_a_sentence(values: dict[str, Any]) -> None:
    """Nothing but a PermanentError ever comes out of bad parameters, and its message can be printed anywhere."""
    try:
        found = parse_params(values)
    except PermanentError as error:
        message = str(error)
        assert message.startswith("parameter ")
        assert "\n" not in message
        assert len(message.encode()) < 2000
    else:
        assert found.campaign == values["campaign"]
        for name in ("tokens_per_dataset", "max_samples", "datasets_at_once"):
            assert getattr(found, name) is None or 0 < getattr(found, name) <= 10**12


@given(st.sampled_from(NAMES), st.text(max_size=3000))
def test_a_wrong_value_is_shown_no_longer_than_it_takes_to_find_it(name: str, text: str) -> None:
    with contextlib.suppress(PermanentError):
        parse_params({"campaign": "c", name: text})
        return
    with pytest.raises(PermanentError, match=name) as caught:
        parse_params({"campaign": "c", name: text})
    assert len(str(caught.value)) < 400
