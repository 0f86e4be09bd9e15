"""A preparation that is stopped or killed in the middle: what was there stays, nothing is left running, the next one succeeds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from draftmill.errors import ExitCode
from draftmill.prompts.prompt import read_prompts
from tests.plans import make_dataset, make_plan
from tests.tokenizers import save_model_folder

ROOT = Path(__file__).resolve().parents[3]
ROWS = 40_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    save_model_folder(tmp_path / "models/tiny")
    (tmp_path / "samples").mkdir()
    with (tmp_path / "samples/alpha.jsonl").open("w") as stream:
        for number in range(ROWS):
            stream.write(json.dumps({"messages": [{"role": "user", "content": f"question {number} {'word ' * 120}"}]}) + "\n")
    (tmp_path / "plan.json").write_text(make_plan(make_dataset(max_prompts=300)).model_dump_json())
    return tmp_path


def start(root: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "draftmill", "prepare", "--plan", "plan.json", "--workspace", str(root), "--dataset", "alpha"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "include"), "DRAFTMILL_PROCESSES": "2"}
    with (root / "log").open("wb") as log:
        return subprocess.Popen(command, cwd=root, env=env, stdout=log, stderr=log, start_new_session=True)


def family_at_work(process: subprocess.Popen[bytes], prompts: Path) -> list[psutil.Process]:
    """The process and all that it started, as soon as a worker has set rows aside; long before it has read them all."""
    while not any(path.is_file() and path.stat().st_size for path in prompts.glob(".alpha.work-*/**/*")):
        assert process.poll() is None, "the preparation ended before it was seen at work"
        time.sleep(0.005)
    parent = psutil.Process(process.pid)
    return [parent, *parent.children(recursive=True)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("whole_group", [True, False])
def test_stopped_in_the_middle(root: Path, number: signal.Signals, whole_group: bool) -> None:
    prompts = root / "campaigns/test/prompts/alpha.jsonl"
    prompts.parent.mkdir(parents=True)
    prompts.write_text("what was there\n")
    process = start(root)
    family = family_at_work(process, prompts.parent)
    assert len(family) >= 3
    os.killpg(process.pid, number) if whole_group else process.send_signal(number)
    process.wait()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    assert process.returncode == (ExitCode.STOPPED if number == signal.SIGTERM else -signal.SIGKILL)
    assert prompts.read_text() == "what was there\n"
    assert start(root).wait() == 0, (root / "log").read_text()
    assert sum(1 for _ in read_prompts(prompts)) == 300
    assert sorted(path.name for path in prompts.parent.iterdir() if "work-" in path.name or path.suffix == ".tmp") == []
