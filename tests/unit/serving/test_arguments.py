from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from draftmill.errors import PermanentError
from draftmill.serving.arguments import check_flags, fingerprint, wanted_flags, write_command
from draftmill.serving.build import Build, Flag
from draftmill.spec.server import ServerProfile

VALUED = [
    "model-path",
    "tp-size",
    "mem-fraction-static",
    "host",
    "port",
    "api-key",
    "max-total-tokens",
    "hicache-ratio",
    "lora-paths",
    "device",
]
KNOWN = {name: Flag(name, True) for name in VALUED} | {
    "kv-cache-dtype": Flag("kv-cache-dtype", True, choices=("auto", "bf16", "fp8_e4m3")),
    "trust-remote-code": Flag("trust-remote-code", False),
    "enable-hierarchical-cache": Flag("enable-hierarchical-cache", False),
    "enable-metrics": Flag("enable-metrics", False),
    "tf32": Flag("tf32", False, negation="no-tf32"),
}


def build(*, config: bool = True) -> Build:
    return Build("/python", "0.5", KNOWN | ({"config": Flag("config", True)} if config else {}))


def profile(**changes: Any) -> ServerProfile:
    return ServerProfile.model_validate({"model_path": "m", **changes})


def flags(**changes: Any) -> dict[str, Any]:
    return wanted_flags(profile(**changes), "/models/m", None, 30001)


def test_a_profile_becomes_flags() -> None:
    assert flags(
        tensor_parallel=8, kv_cache_dtype="bf16", hierarchical_cache=True, hicache_ratio=2.5, trust_remote_code=True, device="cpu"
    ) == {
        "model-path": "/models/m",
        "tp-size": 8,
        "mem-fraction-static": 0.88,
        "host": "127.0.0.1",
        "port": 30001,
        "trust-remote-code": True,
        "kv-cache-dtype": "bf16",
        "enable-hierarchical-cache": True,
        "hicache-ratio": 2.5,
        "device": "cpu",
    }


def test_what_a_profile_leaves_alone_is_not_said() -> None:
    assert set(flags()) == {"model-path", "tp-size", "mem-fraction-static", "host", "port"}


def test_extra_arguments_may_be_spelled_either_way() -> None:
    assert flags(extra_args={"max_total_tokens": 5, "--enable-metrics": True})["max-total-tokens"] == 5
    assert flags(extra_args={"--enable_metrics": True})["enable-metrics"] is True


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"allow_auto_truncate": True}, "cuts long prompts silently"),
        ({"--allow-auto-truncate": True}, "cuts long prompts silently"),
        ({"api-key": "x"}, "a new key is drawn at each launch"),
        ({"tp": 8}, "has a field of its own; use 'tensor_parallel'"),
        ({"max-total-tokens": 1, "max_total_tokens": 2}, "is given twice, spelled differently"),
    ],
)
def test_a_profile_refuses_what_would_go_round_it(extra: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        profile(extra_args=extra)


@pytest.mark.parametrize("env", [{"A=B": "x"}, {"": "x"}, {"A": "x\0y"}, {"DRAFTMILL_JOB": "x"}])
def test_a_profile_refuses_impossible_environments(env: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        profile(env=env)


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [
        ({"max-total-token": 1}, "max-total-token: is no flag of this build; did you mean max-total-tokens? (SGLang 0.5)"),
        ({"zzz": 1}, "zzz: is no flag of this build (SGLang 0.5)"),
        ({"kv-cache-dtype": "bf61"}, "kv_cache_dtype (--kv-cache-dtype): this build does not know 'bf61'; did you mean bf16? (SGLang 0.5)"),
        ({"enable-metrics": 1}, "enable-metrics: is a switch, give true or false (found 1) (SGLang 0.5)"),
    ],
)
def test_faults_name_the_flag_and_the_nearest_one(wanted: dict[str, Any], fault: str) -> None:
    assert check_flags(wanted, build()) == [fault]


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"nope: .*; bad: "):
        write_command(profile(), build(), {"nope": 1, "bad": 2}, tmp_path / "config.yaml")
    assert not (tmp_path / "config.yaml").exists()


def test_arguments_go_into_a_private_file(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    wanted = flags(extra_args={"enable-metrics": False, "tf32": False, "lora-paths": ["a", "b"]}, trust_remote_code=True)
    command = write_command(profile(), build(), wanted, config)
    assert command.argv == ["/python", "-m", "sglang.launch_server", "--config", str(config), "--no-tf32"]
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    written = yaml.safe_load(config.read_text())
    assert written.pop("api-key") == command.api_key
    assert written == {
        "model-path": "/models/m",
        "tp-size": 1,
        "mem-fraction-static": 0.88,
        "host": "127.0.0.1",
        "port": 30001,
        "trust-remote-code": True,
        "lora-paths": ["a", "b"],
    }


def test_every_launch_draws_its_own_key_which_is_no_flag(tmp_path: Path) -> None:
    keys = {write_command(profile(), build(), flags(), tmp_path / "c.yaml").api_key for _ in range(50)}
    assert len(keys) == 50
    assert all(key is not None and key.isalnum() for key in keys)


def test_an_older_build_gets_words_and_no_key(tmp_path: Path) -> None:
    wanted = flags(extra_args={"enable-metrics": True, "tf32": True, "lora-paths": ["a", "b"]})
    command = write_command(profile(), build(config=False), wanted, tmp_path / "c.yaml")
    assert command.api_key is None
    assert command.argv[3:] == [
        "--model-path=/models/m",
        "--tp-size=1",
        "--mem-fraction-static=0.88",
        "--host=127.0.0.1",
        "--port=30001",
        "--enable-metrics",
        "--tf32",
        "--lora-paths",
        "a",
        "b",
    ]
    assert not (tmp_path / "c.yaml").exists()


def test_a_server_for_everybody_needs_a_key_that_stays_secret(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"a key for 0\.0\.0\.0 would be in the process list"):
        write_command(profile(host="0.0.0.0"), build(config=False), flags(host="0.0.0.0"), tmp_path / "c.yaml")


def test_the_fingerprint_tells_what_decides_answers() -> None:
    base = flags()
    same = fingerprint("0.5", base, "digest")
    assert same == fingerprint("0.5", {**base, "port": 1, "host": "::1"}, "digest")
    others = [
        fingerprint("0.6", base, "digest"),
        fingerprint("0.5", {**base, "kv-cache-dtype": "fp8_e4m3"}, "digest"),
        fingerprint("0.5", base, "other"),
    ]
    assert len({same, *others}) == 4
