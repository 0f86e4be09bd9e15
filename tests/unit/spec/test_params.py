"""Run parameters: what people mean is understood, what is wrong is refused in a sentence with the field's name."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.errors import PermanentError
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
    assert parse_params({"campaign": "c", "datasets": "a, b"}).datasets == ("a", "b")
    assert parse_params({"campaign": "c", "datasets": []}).datasets is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(
    st.dictionaries(
        st.sampled_from(["campaign", "datasets", "tokens_per_dataset", "max_samples", "server", "datasets_at_once"]) | st.text(), JSON
    )
)
def test_any_json_is_understood_or_refused(values: dict[str, Any]) -> None:
    """Nothing but a PermanentError ever comes out of bad parameters."""
    with contextlib.suppress(PermanentError):
        assert parse_params(values).campaign == values["campaign"]
