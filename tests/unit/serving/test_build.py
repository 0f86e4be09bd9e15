from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pytest

from draftmill.errors import PermanentError
from draftmill.serving.build import Flag, ask_build, base_environment, parse_help

FAKES = Path(__file__).resolve().parents[2] / "fakes"


def help_of(parser: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "4000")
    return parser.format_help()


def test_flags_are_read_from_a_real_help_text(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-path", "--model", required=True, help="see also --other-flag, which is no entry")
    parser.add_argument("--tp-size", type=int, help="x" * 300)
    parser.add_argument("--kv-cache-dtype", choices=["auto", "bf16"])
    parser.add_argument("--trust-remote-code", action="store_true", help="a switch")
    parser.add_argument("--tf32", action=argparse.BooleanOptionalAction)
    parser.add_argument("--lora-paths", nargs="*")
    parser.add_argument("--very-long-name-that-moves-the-help-to-the-next-line", help="text")
    flags = parse_help(help_of(parser, monkeypatch))
    assert flags["model"] == Flag("model", True)
    assert flags["model-path"].takes_value
    assert flags["tp-size"] == Flag("tp-size", True)
    assert flags["kv-cache-dtype"].choices == ("auto", "bf16")
    assert flags["trust-remote-code"] == Flag("trust-remote-code", False)
    assert flags["tf32"] == Flag("tf32", False, negation="no-tf32")
    assert flags["lora-paths"].takes_value
    assert flags["very-long-name-that-moves-the-help-to-the-next-line"].takes_value
    assert "other-flag" not in flags


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(FAKES), **more}


def test_a_build_is_asked_once(tmp_path: Path) -> None:
    build = ask_build(sys.executable, environment(), tmp_path)
    assert build.version == "0.0.1+fake"
    assert build.reads_config
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(b'{"help": "  --only-this\\n"}')
    assert list(ask_build(sys.executable, environment(), tmp_path).flags) == ["only-this"]


def test_a_changed_installation_is_asked_again(tmp_path: Path) -> None:
    copy = tmp_path / "copy" / "sglang"
    copy.mkdir(parents=True)
    for name in ("__init__.py", "launch_server.py"):
        (copy / name).write_bytes((FAKES / "sglang" / name).read_bytes())
    env = environment(PYTHONPATH=str(copy.parent))
    assert ask_build(sys.executable, env, tmp_path / "cache").reads_config
    source = copy / "launch_server.py"
    source.write_text(source.read_text().replace('"--config"', '"--other"'))
    assert not ask_build(sys.executable, env, tmp_path / "cache").reads_config


def test_no_sglang_is_said_with_its_interpreter(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=f"{sys.executable}: SGLang is not installed; name the interpreter"):
        ask_build(sys.executable, {**os.environ, "PYTHONPATH": ""}, tmp_path)


def test_a_broken_sglang_is_said_with_its_last_line(tmp_path: Path) -> None:
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '1'")
    (package / "launch_server.py").write_text("import nothing_of_this_name")
    with pytest.raises(PermanentError, match="SGLang 1 cannot show its flags: ModuleNotFoundError: No module named 'nothing_of_this_name'"):
        ask_build(sys.executable, environment(PYTHONPATH=str(tmp_path)), tmp_path / "cache")


def test_secrets_reach_the_server_and_our_own_path_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = tmp_path / "secrets.json"
    secrets.write_text('{"HF_TOKEN": "hidden"}')
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/code", "/theirs"]))
    env = base_environment(secrets, Path("/code"))
    assert env["HF_TOKEN"] == "hidden"
    assert env["PYTHONPATH"] == "/theirs"
    monkeypatch.setenv("PYTHONPATH", "/code")
    assert "PYTHONPATH" not in base_environment(tmp_path / "absent.json", Path("/code"))
