from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from draftmill.errors import PermanentError, TemporaryError
from draftmill.jobs.step import StepContext
from draftmill.layout import Workspace
from draftmill.serving import checks
from draftmill.serving.preflight import run
from tests.plans import make_dataset, make_plan
from tests.tokenizers import save_model_folder

FAKES = Path(__file__).resolve().parents[2] / "fakes"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    folder = save_model_folder(tmp_path / "models" / "tiny", vocab_size=1024)
    (folder / "model.safetensors").write_bytes(b"x" * 100_000)
    return Workspace(tmp_path)


def context(workspace: Workspace, *datasets: Any, **profile: Any) -> StepContext:
    values = {"env": {"PYTHONPATH": str(FAKES)}, "round_trip": ["<think>", "</think>"], **profile}
    return StepContext(make_plan(*datasets, profile=values), workspace, lambda message, **numbers: None)


def test_a_fit_host_gives_its_facts(workspace: Workspace) -> None:
    facts = run(context(workspace))
    assert json.loads(json.dumps(facts)) == facts
    assert facts["sglang"]["version"] == "0.0.1+fake"
    assert facts["model"]["weight_bytes"] == 100_000
    assert facts["model"]["vocab_size"] == 1024
    assert facts["tokenizer"]["think_ids"].keys() == {"<think>", "</think>"}
    assert facts["memory"]["available_bytes"] > 0
    assert facts["server"] == {"supervised": False, "state": "absent", "profile": "", "leases": [], "leftovers": []}
    assert "gpus" not in facts  # the profile says device: cpu


def test_all_faults_are_told_at_once(workspace: Workspace) -> None:
    with pytest.raises(PermanentError) as caught:
        run(context(workspace, model_path="/absent", device="cuda", tensor_parallel=8, extra_args={"enable_metric": True}))
    text = str(caught.value)
    assert text.startswith("preflight found 3 faults: (1) server profile tiny-cpu: enable-metric: is no flag of this build")
    assert "(2) model_path: /absent does not exist on this host" in text
    assert "(3) tensor_parallel is 8, but this host shows 0 GPUs" in text


def test_an_incomplete_model(workspace: Workspace) -> None:
    (workspace.root / "models" / "tiny" / "model.safetensors").unlink()
    with pytest.raises(PermanentError, match="holds no weights"):
        run(context(workspace))


def test_a_wrong_tokenizer(workspace: Workspace) -> None:
    with pytest.raises(PermanentError, match=r"makes .* tokens of <nothing>"):
        run(context(workspace, round_trip=["<nothing>"]))


def test_a_hub_model_without_a_hub(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(workspace.root / "cache"))
    env = {"PYTHONPATH": str(FAKES), "HF_HUB_OFFLINE": "1"}
    with pytest.raises(PermanentError, match="owner/model is not in this host's cache and HF_HUB_OFFLINE is set"):
        run(context(workspace, model_path="owner/model", env=env))


def test_a_port_in_use_may_pass(workspace: Workspace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(TemporaryError, match=f"port {port} is taken by pid {os.getpid()} "):
            run(context(workspace, port=port))
        with pytest.raises(TemporaryError, match=f"nccl-port: {port} is taken by pid {os.getpid()} "):
            checks_of_nccl(workspace, port)


def checks_of_nccl(workspace: Workspace, port: int) -> None:
    _, faults = checks.ports(context(workspace, extra_args={"nccl-port": port}).plan.server.profile, workspace)
    raise TemporaryError("; ".join(faults))


def test_a_disk_that_is_too_small_may_pass(workspace: Workspace) -> None:
    with pytest.raises(TemporaryError, match=r"disk: .* GiB free, the campaign may need .*; free space, or lower the budget"):
        run(context(workspace, make_dataset(budget_tokens=10**15)))


def test_disk_already_written_is_not_needed_again(workspace: Workspace) -> None:
    plan = make_plan(make_dataset(budget_tokens=10**9))
    before = checks.disk(plan, workspace)[0]["needed_bytes"]
    journal = workspace.campaign("test").journal("alpha")
    journal.parent.mkdir(parents=True)
    journal.write_bytes(b"x" * 1_000_000)
    assert checks.disk(plan, workspace)[0]["needed_bytes"] == before - 1_000_000


def test_the_estimate_grows_with_budget_and_prompts() -> None:
    small = checks.estimate_bytes(make_plan(make_dataset(budget_tokens=10**6)))
    more = checks.estimate_bytes(make_plan(make_dataset(budget_tokens=2 * 10**6)))
    prompts = checks.estimate_bytes(make_plan(make_dataset(budget_tokens=10**6, max_prompts=10**6)))
    assert small < more < prompts


def test_a_python_without_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_NEEDED", ("pydantic", "no-such-package"))
    found, faults = checks.python()
    assert found["packages"]["pydantic"]
    assert "lacks no-such-package; run draftmill with the Python that serves the model" in faults[0]


def test_a_lost_clock(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.clock(workspace)[1] == []
    monkeypatch.setattr(checks.time, "time", lambda: 1_000_000.0)
    faults = checks.clock(workspace)[1]
    assert "this host believes it is 1970-01-12" in faults[0]
    assert "away from this host" in faults[1]
