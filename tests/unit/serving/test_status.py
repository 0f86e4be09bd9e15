from __future__ import annotations

import time
from pathlib import Path

import pytest

from draftmill.layout import Workspace
from draftmill.serving.cli import main
from draftmill.serving.folder import Diagnosed, ServerFolder, ServerState, read_state, request_digest, write_state
from draftmill.serving.status import describe, facts
from draftmill.spec.server import NamedServer, ServerProfile


def test_a_workspace_without_a_server(tmp_path: Path) -> None:
    text = describe(facts(Workspace(tmp_path)))
    assert text.splitlines()[0] == "state        stopped: no server was ever started here"


def test_the_state_is_shown_without_its_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspace = Workspace(tmp_path)
    last = Diagnosed(cause="nccl", sentence="the GPUs lost each other", advice="look at them", kind="temporary", incarnation=1, at=1.0)
    state = ServerState(
        state="failed",
        message="gone",
        server="kimi",
        api_key="hidden",
        mark="abc",
        incarnation=2,
        kv_capacity_tokens=159_000,
        ready_at=time.time(),
        last=last,
    )
    write_state(ServerFolder.of(workspace), state)
    assert read_state(ServerFolder.of(workspace)) == state
    for options in ([], ["--json"]):
        assert main(["status", "--workspace", str(tmp_path), *options]) == 0
        shown = capsys.readouterr().out
        assert "hidden" not in shown
        assert "the GPUs lost each other" in shown
    assert "hidden" not in repr(state)
    assert ServerFolder.of(workspace).state.stat().st_mode & 0o777 == 0o600


def test_a_server_without_its_supervisor_is_lost(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    write_state(ServerFolder.of(workspace), ServerState(state="ready", message="ready", ready_at=1.0))
    assert "lost: its supervisor is gone, nothing of it is left" in describe(facts(workspace))


def test_an_unreadable_state_is_none(tmp_path: Path) -> None:
    folder = ServerFolder(tmp_path)
    for text in ("{", '{"incarnation": "many"}', ""):
        folder.state.write_text(text)
        assert read_state(folder) is None


def test_a_log_is_explained_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.write_text("OSError: [Errno 98] address already in use\napi_key='hidden'\n")
    assert main(["diagnose", str(log)]) == 0
    assert capsys.readouterr().out.startswith("port_in_use: a port is in somebody else's use")
    assert main(["diagnose", str(tmp_path / "absent")]) == 65
    assert "no such file" in capsys.readouterr().err


def test_stopping_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stop", "--workspace", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "no server is running\n"


def test_the_digest_tells_profiles_apart_but_not_their_descriptions() -> None:
    def digest(name: str = "a", **changes: object) -> str:
        return request_digest(NamedServer(name=name, profile=ServerProfile.model_validate({"model_path": "m", **changes})))

    assert digest() == digest(description="other words")
    assert len({digest(), digest("b"), digest(port=1), digest(env={"A": "1"})}) == 4
