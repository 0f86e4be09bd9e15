"""A workspace with a server that cannot outlive its test, and profiles for the stand-in and for the real SGLang."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from draftmill.layout import Workspace
from draftmill.serving.folder import ServerFolder, ServerState, read_state
from draftmill.serving.ground import leftovers
from draftmill.serving.stopping import stop_server
from draftmill.spec.server import NamedServer, ServerProfile
from tests.tokenizers import save_model_folder

FAKES = Path(__file__).resolve().parents[2] / "fakes"


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    workspace = Workspace(tmp_path / "workspace")
    workspace.root.mkdir()
    yield workspace
    stop_server(workspace)
    folder = ServerFolder.of(workspace)
    assert leftovers(read_state(folder) or ServerState(), folder) == []


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = save_model_folder(tmp_path / "model", vocab_size=1024)
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


@pytest.fixture
def fake(model: Path) -> Any:
    """Makes a profile that starts the stand-in in a mode."""

    def make(mode: str = "ok", *, name: str = "fake", env: dict[str, str] | None = None, **changes: Any) -> NamedServer:
        values: dict[str, Any] = {
            "device": "cpu",
            "model_path": str(model),
            "port": 0,
            "idle_stop_s": 60,
            "load_stall_s": 30,
            "silent_s": 2,
            "drain_s": 5,
            "restart_backoff_s": 0.1,
        } | changes
        values["env"] = {"PYTHONPATH": str(FAKES), "FAKE_MODE": mode, **(env or {})}
        return NamedServer(name=name, profile=ServerProfile.model_validate(values))

    return make


@pytest.fixture
def fake_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Put the stand-in for NVML on every path; returns the file that says which GPUs there are."""
    path = tmp_path / "gpus.json"
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(FAKES / "gpus"), before])))
    monkeypatch.syspath_prepend(str(FAKES / "gpus"))
    monkeypatch.setenv("FAKE_GPUS", str(path))
    return path
