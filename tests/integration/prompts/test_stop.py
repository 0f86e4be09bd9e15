"""A preparation that is stopped or killed in the middle: what was there stays, nothing is left running, the next one succeeds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from draftmill.errors import ExitCode
from draftmill.prompts.prompt import read_prompts
from tests.plans import make_dataset, make_plan
from tests.tokenizers import save_model_folder

ROOT = Path(__file__).resolve().parents[3]
ROWS = 150_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    save_model_folder(tmp_path / "models/tiny")
    (tmp_path / "samples").mkdir()
    with (tmp_path / "samples/alpha.jsonl").open("w") as stream:
        for number in range(ROWS):
            stream.write(json.dumps({"messages": [{"role": "user", "content": f"question {number} {'word ' * 120}"}]}) + "\n")
    (tmp_path / "plan.json").write_text(make_plan(make_dataset(max_prompts=300)).model_dump_json())
    return tmp_path


def start(root: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "draftmill", "prepare", "--plan", "plan.json", "--workspace", str(root), "--dataset", "alpha"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "include"), "DRAFTMILL_PROCESSES": "2"}
    return subprocess.Popen(command, cwd=root, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for_reading(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Until rows are being read; returns the process and all that it started."""
    assert process.stderr is not None
    for line in process.stderr:
        if "rows of alpha read" in line:
            break
    parent = psutil.Process(process.pid)
    return [parent, *parent.children(recursive=True)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("whole_group", [True, False])
def test_stopped_in_the_middle(root: Path, number: signal.Signals, whole_group: bool) -> None:
    prompts = root / "campaigns/test/prompts/alpha.jsonl"
    prompts.parent.mkdir(parents=True)
    prompts.write_text("what was there\n")
    process = start(root)
    family = wait_for_reading(process)
    assert len(family) >= 3
    os.killpg(process.pid, number) if whole_group else process.send_signal(number)
    process.communicate()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    assert process.returncode == (ExitCode.STOPPED if number == signal.SIGTERM else -signal.SIGKILL)
    assert prompts.read_text() == "what was there\n"
    again = start(root)
    _, errors = again.communicate()
    assert again.returncode == 0, errors
    assert sum(1 for _ in read_prompts(prompts)) == 300
    assert sorted(path.name for path in prompts.parent.iterdir() if "work-" in path.name or path.suffix == ".tmp") == []
