"""Configuration files: what ships is valid; what is wrong is refused with the file, the field and the reason."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from draftmill.errors import PermanentError
from draftmill.spec.build import build_plan
from draftmill.spec.load import Config
from draftmill.spec.params import parse_params
from draftmill.spec.plan import Plan

SHIPPED = Path(__file__).resolve().parents[3] / "include" / "config"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the shipped configuration, to be damaged."""
    return Path(shutil.copytree(SHIPPED, tmp_path / "config"))


def change(folder: Path, file: str, old: str, new: str) -> None:
    path = folder / file
    text = path.read_text()
    assert old in text, f"{old!r} is not in {file}"
    path.write_text(text.replace(old, new, 1))


def test_the_shipped_campaign_is_what_it_says() -> None:
    plan = build_plan(Config(SHIPPED), parse_params({"campaign": "synth_100k"}))
    assert {entry.name for entry in plan.datasets} == {
        "B1_glaive",
        "B2_opencodeinstruct",
        "B3_magicoder",
        "B4_mixturethoughts",
        "B5_openthoughts",
        "B6_ultrachat",
        "B7_sharegpt",
        "B8_sweagent",
    }
    for entry in plan.datasets:
        assert entry.budget_tokens == 10_000_000
        limits = {"short": (150, 10_240), "long": (32, 16_384)}[entry.length_class]
        assert (entry.in_flight, entry.max_new_tokens) == limits
    assert plan.names[0] == "B8_sweagent", "the longest answers go first"


@pytest.mark.parametrize("profile", ["kimi-k25-bf16", "kimi-k25-fp8kv", "tiny-cpu"])
def test_the_shipped_profiles_load(profile: str) -> None:
    plan = build_plan(Config(SHIPPED), parse_params({"campaign": "synth_100k", "server": profile}))
    assert plan.server.name == profile
    assert plan.server.profile.host == "127.0.0.1"


def test_a_plan_survives_json() -> None:
    plan = build_plan(Config(SHIPPED), parse_params({"campaign": "synth_100k"}))
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_a_narrowed_plan_does_not_depend_on_the_others() -> None:
    config = Config(SHIPPED)
    all_eight = build_plan(config, parse_params({"campaign": "synth_100k"}))
    two = build_plan(config, parse_params({"campaign": "synth_100k", "datasets": ["B1_glaive", "B8_sweagent"]}))
    assert all_eight.only("B1_glaive") == two.only("B1_glaive")


CAMPAIGN = "campaigns/synth_100k.yaml"


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        (CAMPAIGN, "seed: 20260101", "seed: 20260101\nsede: 1", ["synth_100k.yaml", "sede", "unknown key"]),
        (CAMPAIGN, "seed: 20260101", "seed: many", ["synth_100k.yaml", "seed", "integer"]),
        (CAMPAIGN, "seed: 20260101", "seed: 1\nseed: 2", ["synth_100k.yaml", "'seed'", "twice"]),
        (CAMPAIGN, "tokens_per_dataset: 10_000_000", "tokens_per_dataset: 0", ["tokens_per_dataset", "greater than 0"]),
        (CAMPAIGN, "tokens_per_dataset: 10_000_000", "tokens_per_dataset: -5", ["tokens_per_dataset", "greater than 0"]),
        (CAMPAIGN, "tokens_per_dataset: 10_000_000", "tokens_per_dataset: lots", ["tokens_per_dataset", "whole number"]),
        (CAMPAIGN, "tokens_per_dataset: 10_000_000", "tokens_per_dataset: 1e13", ["tokens_per_dataset", "less than or equal to"]),
        (CAMPAIGN, "tokens_per_dataset: 10_000_000", "tokens_per_dataset: null", ["tokens_per_dataset", "integer"]),
        (CAMPAIGN, "max_prompts: 10000}", "max_prompts: 1.5k5}", ["max_prompts", "whole number"]),
        (CAMPAIGN, "datasets_at_once: 2", "datasets_at_once: true", ["datasets_at_once", "whole number"]),
        (CAMPAIGN, "seed: 20260101", f"seed: {2**63}", ["seed"]),
        (CAMPAIGN, "name: B1_glaive", "name: B2_opencodeinstruct", ["datasets", "B2_opencodeinstruct", "more than once"]),
        (CAMPAIGN, "name: B1_glaive", "name: B1_glaiv", ["datasets", "B1_glaiv", "did you mean B1_glaive"]),
        (CAMPAIGN, "server: kimi-k25-bf16", "server: kimi", ["server", "kimi", "unknown"]),
        (CAMPAIGN, "name: synth_100k", "name: other", ["name", "differs"]),
        (CAMPAIGN, "in_flight: 150", "in_flight: 0", ["classes.short", "in_flight"]),
        ("datasets.yaml", "length_class: short", "length_class: middling", ["datasets.yaml", "length_class", "short"]),
        ("datasets.yaml", "{hub: glaiveai/glaive-function-calling-v2, ", "{path: a/../../etc/passwd, ", ["path", "'..'"]),
        ("datasets.yaml", "{hub: glaiveai/glaive-function-calling-v2, ", "{", ["sources", "either 'hub' or 'path'"]),
        ("servers.yaml", "attention-backend: torch_native", "allow_auto_truncate: true", ["extra_args", "allow-auto-truncate"]),
        ("servers.yaml", "memory_fraction: 0.88", "memory_fraction: 88", ["memory_fraction", "less than 1"]),
        ("servers.yaml", "kimi-k25-fp8kv:", "kimi/../x:", ["servers.yaml", "kimi/../x"]),
        ("datasets.yaml", "B1_glaive:", "B1_glaive: [", ["datasets.yaml", "not valid YAML"]),
    ],
)
def test_faults_are_named(folder: Path, file: str, old: str, new: str, words: list[str]) -> None:
    change(folder, file, old, new)
    with pytest.raises(PermanentError) as caught:
        build_plan(Config(folder), parse_params({"campaign": "synth_100k"}))
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value), "an error is one sentence"


def test_a_missing_file_says_where(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"campaign: 'synth_100k' is not a campaign file in .*known: none"):
        Config(tmp_path).campaign("synth_100k")
