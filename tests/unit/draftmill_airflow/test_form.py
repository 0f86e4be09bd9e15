"""The trigger form: choices from the configuration, and nothing between a value and `plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from draftmill.errors import PermanentError
from draftmill.spec.load import Config
from draftmill_airflow.form import configuration, default_campaign, form

CONFIG = Config(Path(__file__).resolve().parents[3] / "include" / "config")


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


def test_the_environment_names_folder_and_campaign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRAFTMILL_CONFIG", str(tmp_path))
    monkeypatch.setenv("DRAFTMILL_CAMPAIGN", "mine")
    assert configuration().folder == tmp_path
    with pytest.raises(PermanentError, match="'mine' is not a campaign file"):
        default_campaign(configuration())


def test_without_the_environment_the_folder_is_beside_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRAFTMILL_CONFIG", raising=False)
    monkeypatch.delenv("DRAFTMILL_CAMPAIGN", raising=False)
    assert default_campaign(configuration()).name == "synth_100k"
