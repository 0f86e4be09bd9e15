from __future__ import annotations

import logging
from pathlib import Path

import pytest

from draftmill.serving import statekeeper
from draftmill.serving.folder import ServerFolder, ServerState, read_state
from draftmill.serving.statekeeper import StateKeeper


def test_what_cannot_be_written_is_kept_and_written_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A disk that takes nothing, here a file where the folder should be, delays the state and ends nothing."""
    folder = ServerFolder(tmp_path / "server")
    folder.root.touch()
    keeper = StateKeeper(folder, ServerState(message="first"))
    keeper.write(state="ready", message="second")
    assert keeper.state.state == "ready"
    assert caplog.text.count("state.json cannot be written") == 1
    folder.root.unlink()
    keeper.catch_up()
    assert read_state(folder) == keeper.state
    folder.state.unlink()
    keeper.catch_up()  # nothing is owed
    assert read_state(folder) is None


def test_lines_for_people_come_every_few_seconds_and_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ServerFolder(tmp_path)
    now = [100.0]
    monkeypatch.setattr(statekeeper.time, "monotonic", lambda: now[0])
    keeper = StateKeeper(folder, ServerState(api_key="hidden"))
    keeper.tell("one hidden")
    keeper.tell("two")
    assert keeper.state.message == "one ***"
    now[0] += 6
    keeper.tell("x" * 1000)
    assert keeper.state.message == "x" * 200


def test_every_change_of_state_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    keeper = StateKeeper(ServerFolder(tmp_path), ServerState(incarnation=3))
    keeper.write(state="ready", message="ready")
    keeper.write(message="still ready")
    assert caplog.messages == ["incarnation 3: ready: ready"]
