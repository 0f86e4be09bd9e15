"""The trigger form: choices from the configuration, and nothing between a value and `plan`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.spec.load import Config
from draftmill.spec.params import RunParams
from draftmill_airflow.form import form

CONFIG = Config(Path(__file__).resolve().parents[3] / "include" / "config")


@functools.cache
def params() -> dict[str, Any]:
    return form(CONFIG, CONFIG.campaign("synth_100k"))


def test_choices_come_from_the_configuration() -> None:
    made = params()
    assert "synth_100k" in made["campaign"].schema["examples"]
    assert made["datasets"].schema["examples"][0] == "B1_glaive"
    assert "kimi-k25-fp8kv" in made["server"].schema["examples"]
    assert "10,000,000" in made["tokens_per_dataset"].description


def test_no_field_is_a_box_of_six_lines() -> None:
    """What Airflow's form does with a value of several types unless examples come with it."""
    assert [name for name, param in params().items() if "examples" not in param.schema] == []
    assert {name: param.schema["type"][0] for name, param in params().items()} == {
        "campaign": "string",
        "datasets": "array",
        "dry_run": "boolean",
        "tokens_per_dataset": "string",
        "max_samples": "string",
        "server": "string",
        "datasets_at_once": "string",
        "merge_partial": "boolean",
    }


def test_every_field_reads_well() -> None:
    for name, param in params().items():
        assert param.description, name
        assert param.schema["title"], name
        assert param.schema["section"], name
        param.resolve()  # the defaults fit


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens_per_dataset", "10M"),
        ("tokens_per_dataset", None),
        ("tokens_per_dataset", 0),
        ("tokens_per_dataset", 1e7),
        ("datasets", ["unknown"]),
        ("datasets", None),
        ("datasets", "B1_glaive,B2_opencodeinstruct"),
        ("campaign", "x; touch /tmp/pwned"),
        ("merge_partial", None),
        ("dry_run", None),
    ],
)
def test_values_reach_plan_which_alone_judges_them(name: str, value: object) -> None:
    assert params()[name].resolve(value) == value


SCALAR = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(SCALAR, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)


@given(st.sampled_from(sorted(RunParams.model_fields)), JSON)
def test_the_form_lets_every_value_through_to_plan(name: str, value: object) -> None:
    """Were one refused by its schema, the API would answer with pages, and refuse what the command line may accept."""
    assert params()[name].resolve(value) == value


def test_the_form_has_every_parameter_and_no_other() -> None:
    assert set(params()) == set(RunParams.model_fields)
