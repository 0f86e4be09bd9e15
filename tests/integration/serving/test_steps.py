"""The steps `launch` and `stop-server`, with the stand-in: as the DAG calls them, from the delivered file as well as from the folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from draftmill.errors import PermanentError
from draftmill.files import write_json
from draftmill.jobs.bundle import build
from draftmill.jobs.step import StepContext
from draftmill.layout import Workspace
from draftmill.serving import step
from draftmill.serving.folder import ServerFolder, read_state
from draftmill.serving.lease import hold
from draftmill.serving.stopping import is_running, supervisor_process
from draftmill.spec.plan import Plan
from draftmill.spec.server import NamedServer
from tests.integration.serving.test_life import lives, state_of, until
from tests.plans import make_dataset, make_plan


def plan_with(server: NamedServer, campaign: str = "one", **dataset: Any) -> Plan:
    plan = make_plan(make_dataset("alpha", **dataset), campaign=campaign)
    return plan.model_copy(update={"server": server})


class Told(list[str]):
    """A progress sink that keeps what it is told."""

    def __call__(self, message: str, **numbers: Any) -> None:
        self.append(message)


def context(workspace: Workspace, plan: Plan) -> StepContext:
    return StepContext(plan, workspace, Told())


def test_launch_stays_up_and_a_second_one_joins(workspace: Workspace, fake: Any) -> None:
    ctx = context(workspace, plan_with(fake()))
    first = step.launch(ctx)
    assert first == {
        "needed": True,
        "version": "0.0.1+fake",
        "model_path": ctx.plan.server.profile.model_path,
        "served_model_name": ctx.plan.server.profile.model_path,
        "kv_capacity_tokens": 65536,
        "context_length": 2048,
        "fingerprint": first["fingerprint"],
        "incarnation": 1,
        "seconds": first["seconds"],
    }
    second = step.launch(ctx)
    assert second | {"seconds": 0} == first | {"seconds": 0}
    assert supervisor_process(workspace).alive()


def test_a_finished_campaign_starts_nothing(workspace: Workspace, fake: Any) -> None:
    ctx = context(workspace, plan_with(fake(), budget_tokens=100))
    journal = ctx.folder.journal("alpha")
    journal.parent.mkdir(parents=True)
    journal.write_bytes(orjson.dumps({"id": "a" * 32, "usage": {"completion_tokens": 100}}) + b"\n")
    write_json(ctx.folder.prompts_meta("alpha"), {"prompts": 5})
    assert step.launch(ctx) == {
        "needed": False,
        "version": None,
        "model_path": None,
        "served_model_name": None,
        "kv_capacity_tokens": None,
        "context_length": None,
        "fingerprint": None,
        "incarnation": None,
        "seconds": 0.0,
    }
    assert not ServerFolder.of(workspace).state.exists()


def test_a_cache_too_small_for_the_campaign_ends_the_server_at_once(workspace: Workspace, fake: Any) -> None:
    with pytest.raises(PermanentError, match="its KV cache holds 4,578 tokens, and one request of alpha may need 10,240"):
        step.launch(context(workspace, plan_with(fake("small_kv"), max_new_tokens=10_240)))
    assert not is_running(workspace)
    assert step.launch(context(workspace, plan_with(fake("small_kv"), max_new_tokens=512)))["needed"] is True


def test_stop_verifies_and_is_quick_where_nothing_runs(workspace: Workspace, fake: Any) -> None:
    ctx = context(workspace, plan_with(fake()))
    assert step.stop(ctx) == {"stopped": True, "reason": "no server was running", "seconds": 0.0}
    step.launch(ctx)
    result = step.stop(ctx)
    assert result["stopped"] is True
    assert result["reason"] == "stopped; no process is left, the port is free, GPU memory is back"
    assert not is_running(workspace)


def test_stop_leaves_the_server_of_another_campaign(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    server = fake()
    with hold(workspace, server, "two/beta", stop) as source:
        result = step.stop(context(workspace, plan_with(server)))
        assert result["stopped"] is False
        assert result["reason"].startswith("left running for two/beta (pid ")
        assert source.wait().incarnation == 1
        assert step.stop(context(workspace, plan_with(server, "two")))["stopped"] is True


def test_stop_names_what_cannot_be_ended(workspace: Workspace, fake: Any, fake_gpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that a driver does not give back, as after a crash of its firmware; the supervisor was killed, so the step itself looks."""
    from draftmill.serving import verify

    gib = 1 << 30
    fake_gpus.write_bytes(orjson.dumps([{"uuid": "GPU-0", "total": 96 * gib, "used": gib}]))
    ctx = context(workspace, plan_with(fake(device="cuda")))
    step.launch(ctx)
    os.kill(state_of(workspace).supervisor_pid, signal.SIGKILL)
    fake_gpus.write_bytes(orjson.dumps([{"uuid": "GPU-0", "total": 96 * gib, "used": 60 * gib}]))
    monkeypatch.setattr(verify, "WAIT_S", 0.5)
    for _ in range(2):
        with pytest.raises(PermanentError, match="not all of it is gone: GPU 0 holds 60,416 MiB more than before the start"):
            step.stop(ctx)
    fake_gpus.write_bytes(orjson.dumps([{"uuid": "GPU-0", "total": 96 * gib, "used": gib}]))
    assert step.stop(ctx)["reason"].startswith("stopped; no process is left")
    assert step.stop(ctx)["reason"] == "no server was running"


def test_the_delivered_file_launches_and_stops(workspace: Workspace, fake: Any, tmp_path: Path) -> None:
    bundle = build(tmp_path / "code")
    plan = tmp_path / "plan.json"
    plan.write_bytes(orjson.dumps(plan_with(fake()).model_dump(mode="json")))

    def draftmill(*words: str) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        argv = [sys.executable, str(bundle), *words, "--workspace", str(workspace.root)]
        return subprocess.run(argv, env=env, cwd="/", capture_output=True, text=True, timeout=120, check=False)

    launched = draftmill("launch", "--plan", str(plan))
    assert launched.returncode == 0, launched.stderr
    assert orjson.loads(launched.stdout)["version"] == "0.0.1+fake"
    shown = draftmill("server", "status")
    assert shown.stdout.splitlines()[0].startswith("state        ready")
    key = state_of(workspace).api_key
    assert key
    assert key not in launched.stdout + launched.stderr + shown.stdout
    assert draftmill("server", "stop").stdout == "stopped; nothing is left of it\n"
    assert not is_running(workspace)


def test_whoever_comes_while_an_idle_server_goes_gets_a_new_one(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    """Leases are taken at all moments around the idle stop; each holder gets a server that works."""
    server = fake(idle_stop_s=0.6)
    incarnations = []
    for pause in (0.3, 0.6, 0.8, 1.0, 1.4):
        with hold(workspace, server, "one/alpha", stop) as source:
            incarnations.append(source.wait().incarnation)
            state = read_state(ServerFolder.of(workspace))
            assert state is not None
            assert state.leader is not None
            assert lives(state.leader.pid)
        time.sleep(pause)
    assert incarnations == sorted(incarnations)
    until(lambda: not is_running(workspace))
