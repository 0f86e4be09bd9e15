"""The real SGLang on the CPU: launched, identified, shared by two generate jobs, killed in the middle of their work, idle, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from draftmill.files import write_json
from draftmill.generation.journal import read_responses
from draftmill.jobs import control
from draftmill.jobs.models import JobKey, StartRequest, StatusRequest
from draftmill.jobs.proc import command_line, read_stat
from draftmill.jobs.step import StepContext
from draftmill.layout import Workspace
from draftmill.prompts.prompt import Prompt, content_id, order_key
from draftmill.serving import step
from draftmill.serving.folder import ServerFolder, ServerState, read_state
from draftmill.serving.ports import is_listening
from draftmill.serving.stopping import is_running
from draftmill.spec.plan import Plan
from tests.integration.serving.test_life import lives, until
from tests.plans import make_dataset, make_plan
from tests.tiny_model import build

ROOT = Path(__file__).resolve().parents[3]
PYTHON = Path(os.environ.get("DRAFTMILL_SGLANG_PYTHON") or ROOT / ".venv-sglang" / "bin" / "python")
SHIM = ROOT / "demo" / "cpu_shim"
PROMPTS = 400
ESCAPE = """
import subprocess, sys
import gpu_stand_ins
if "sglang.launch_server" in sys.orig_argv and "--help" not in sys.orig_argv:
    nowhere = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen(["sleep", "600"], env={}, start_new_session=True, **nowhere)
"""
"""A sitecustomize that starts a process outside the server's session and without its log."""

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.slow,
    pytest.mark.timeout(900),  # loading takes minutes on a busy machine
    pytest.mark.skipif(not PYTHON.exists(), reason=f"no SGLang environment at {PYTHON}; `make setup` makes one"),
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(str(PYTHON), tmp_path_factory.mktemp("models") / "tiny")


def plan_for(tiny: Path, **profile: Any) -> Plan:
    values: dict[str, Any] = {
        "python": str(PYTHON),
        "model_path": str(tiny),
        "memory_fraction": 0.2,
        "idle_stop_s": 120,
        "silent_s": 30,
        "drain_s": 20,
        "restart_backoff_s": 0.5,
        "min_kv_tokens": 10_000,
        "extra_args": {"attention-backend": "torch_native", "max_total_tokens": 65536, "sleep-on-idle": True, "enable-metrics": True},
        "env": {
            "SGLANG_USE_CPU_ENGINE": "1",
            "OMP_NUM_THREADS": "1",
            "TORCHDYNAMO_DISABLE": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": f"{ROOT / 'tests' / 'fakes' / 'cpu'}:{SHIM}",
        },
    } | profile
    datasets = [make_dataset(name, budget_tokens=12_000, max_new_tokens=120, in_flight=8) for name in ("alpha", "beta")]
    return make_plan(*datasets, profile=values)


def write_prompts(workspace: Workspace, plan: Plan) -> None:
    """Prompts files as `prepare` writes them, from counted ids."""
    folder = workspace.campaign(plan.campaign)
    for name in plan.names:
        prompts = []
        for number in range(PROMPTS):
            identity = content_id(f"{name}/{number}".encode())
            prompts.append(Prompt(identity, [0, 4, 8 + number % 900, 9 + number // 900, 5], name, identity))
        prompts.sort(key=lambda prompt: order_key(plan.seed, prompt.id))
        path = folder.prompts(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(prompt.to_line() for prompt in prompts))
        write_json(folder.prompts_meta(name), {"schema": 1, "prompts": PROMPTS, "vocab_size": 1024, "eos_token_ids": [1]})


def state_of(workspace: Workspace) -> ServerState:
    state = read_state(ServerFolder.of(workspace))
    assert state is not None
    return state


def context(workspace: Workspace, plan: Plan) -> StepContext:
    return StepContext(plan, workspace, lambda message, **numbers: None)


def test_launch_identity_idle_stop_and_verified_stop(workspace: Workspace, tiny: Path) -> None:
    plan = plan_for(tiny, idle_stop_s=6)
    write_prompts(workspace, plan)
    result = step.launch(context(workspace, plan))
    assert result["needed"] is True
    assert result["model_path"] == str(tiny)
    assert result["kv_capacity_tokens"] == 65536
    assert result["context_length"] == 2048
    assert result["version"][0].isdigit()
    state = state_of(workspace)
    assert state.api_key
    assert state.api_key not in subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert state.leader is not None
    assert {read_stat(record.pid).session for record in state.processes} == {state.leader.pid}  # type: ignore[union-attr]
    again = step.launch(context(workspace, plan))
    assert again["incarnation"] == result["incarnation"]
    assert again["seconds"] < 5
    until(lambda: state_of(workspace).state == "stopped", 60)
    assert state_of(workspace).message == "nobody needed it for 6 s"
    assert [record.pid for record in state.processes if lives(record.pid)] == []
    assert not is_listening(state.port)
    until(lambda: not is_running(workspace))
    assert step.stop(context(workspace, plan)) == {"stopped": True, "reason": "no server was running", "seconds": 0.0}


@pytest.mark.parametrize(("what", "cause"), [(signal.SIGKILL, "killed"), (signal.SIGSTOP, "wedged")])
def test_a_scheduler_lost_in_mid_generation_costs_two_jobs_nothing(
    workspace: Workspace, tiny: Path, what: signal.Signals, cause: str
) -> None:
    """Killed: the tree takes itself down. Stopped: HTTP answers on and no token comes, which the jobs and the supervisor notice."""
    plan = plan_for(tiny, silent_s=10)
    write_prompts(workspace, plan)
    folder = workspace.campaign(plan.campaign)
    keys = {name: JobKey(campaign=plan.campaign, task="generate", dataset=name) for name in plan.names}
    for name, key in keys.items():
        control.start(StartRequest(workspace=str(workspace.root), key=key, plan=plan.only(name)))
    try:
        journals = [folder.journal(name) for name in keys]
        until(lambda: all(path.exists() and sum(1 for _ in read_responses(path)) >= 5 for path in journals), 250)
        first = state_of(workspace)
        scheduler = [record.pid for record in first.processes if "scheduler" in command_line(record.pid)]
        assert len(scheduler) == 1
        before = {name: {response.id for response in read_responses(folder.journal(name))} for name in keys}
        os.kill(scheduler[0], what)
        finished = {name: until(lambda key=key: _ended(workspace, key), 300) for name, key in keys.items()}
    finally:
        for key in keys.values():
            control.stop(_stop_request(workspace, key))
    for name, status in finished.items():
        assert status.state == "done", status.error
        assert status.result is not None
        assert status.result["outcome"] == "budget_reached"
        responses = list(read_responses(folder.journal(name)))
        assert max(Counter(response.id for response in responses).values()) == 1
        assert before[name] <= {response.id for response in responses}
        assert sum(response.completion_tokens for response in responses) == status.result["completion_tokens"]
    last = state_of(workspace)
    assert last.restarts == 1
    assert last.incarnation == first.incarnation + 1
    assert last.last is not None
    assert last.last.cause == cause
    assert [record.pid for record in first.processes if lives(record.pid)] == []
    began = time.monotonic()
    assert step.stop(context(workspace, plan))["reason"].startswith("stopped; no process is left")
    assert time.monotonic() - began < 60
    assert not is_listening(last.port)


def _ended(workspace: Workspace, key: JobKey) -> Any:
    status = control.status(StatusRequest(workspace=str(workspace.root), key=key))
    return None if status.state == "running" else status


def _stop_request(workspace: Workspace, key: JobKey) -> Any:
    from draftmill.jobs.models import StopRequest

    return StopRequest(workspace=str(workspace.root), key=key, grace_s=5)


def test_a_killed_launcher_and_a_worker_that_left_the_tree(workspace: Workspace, tiny: Path) -> None:
    """A process that the server's own Python started, in a session of its own and with another output, outlives the launcher."""
    escape = tiny.parent / "escape"
    escape.mkdir(exist_ok=True)
    (escape / "sitecustomize.py").write_text(ESCAPE)
    plan = plan_for(tiny)
    profile = plan.server.profile.model_copy(update={"env": {**plan.server.profile.env, "PYTHONPATH": f"{escape}:{SHIM}"}})
    plan = plan.model_copy(update={"server": plan.server.model_copy(update={"profile": profile})})
    write_prompts(workspace, plan)
    step.launch(context(workspace, plan))
    first = state_of(workspace)
    assert first.leader is not None
    escaped = [record.pid for record in first.processes if command_line(record.pid) == "sleep 600"]
    assert len(escaped) == 1, [command_line(record.pid) for record in first.processes]
    os.kill(first.leader.pid, signal.SIGKILL)
    until(lambda: state_of(workspace).restarts == 1, 30)
    assert [record.pid for record in first.processes if lives(record.pid)] == []
    until(lambda: state_of(workspace).state == "ready", 250)
    step.stop(context(workspace, plan))
    assert state_of(workspace).state == "stopped"


def test_what_only_the_build_can_refuse_ends_with_its_sentence(workspace: Workspace, tiny: Path) -> None:
    """The value is of the right kind, and wrong."""
    plan = plan_for(tiny, extra_args={"attention-backend": "torch_native", "max-total-tokens": 65536, "page-size": -3})
    write_prompts(workspace, plan)
    argv = [sys.executable, "-m", "draftmill", "launch", "--workspace", str(workspace.root)]
    (workspace.root / "plan.json").write_bytes(orjson.dumps(plan.model_dump(mode="json")))
    argv += ["--plan", str(workspace.root / "plan.json")]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "include")}
    outcome = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=500, check=False)
    assert outcome.returncode == 65, outcome.stderr
    assert "server tiny-cpu: SGLang failed with " in outcome.stderr
    assert outcome.stderr.splitlines()[-1].startswith("draftmill: server tiny-cpu: ")
    assert str(ServerFolder.of(workspace).logs) in outcome.stderr
