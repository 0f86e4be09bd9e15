"""The same prompts from other versions of transformers and Python, and from draftmill as one file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from draftmill.files import read_json
from draftmill.jobs.bundle import build
from draftmill.jobs.step import StepContext
from draftmill.layout import Workspace
from draftmill.prompts.prepare import run
from draftmill.spec.plan import Plan
from tests.plans import make_dataset, make_plan
from tests.tokenizers import save_model_folder

OTHER_PYTHON = os.environ.get("DRAFTMILL_TRANSFORMERS4_PYTHON", "")
ROWS = [
    {
        "messages": [
            {"role": "system", "content": "Sei kurz."},
            {"role": "user", "content": f"Frage {number}: 四 🙂 " + ("<|im_end|> " if number % 3 else "") + "x" * (number % 50)},
        ],
        "tools": [{"name": "f", "parameters": {"b": 1, "a": [1.5]}}] if number % 2 else None,
    }
    for number in range(300)
]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    save_model_folder(tmp_path / "models/tiny")
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples/alpha.jsonl").write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in ROWS))
    plan = make_plan(make_dataset(), profile={"round_trip": ["<think>", "</think>"]})
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    return plan


def expected(plan: Plan, root: Path) -> bytes:
    """The prompts file as this very process makes it."""
    here = plan.model_copy(update={"campaign": "here"})
    return Path(run(StepContext(here, Workspace(root), lambda *_, **__: None, "alpha"))["path"]).read_bytes()


def prepare_with(command: list[str], root: Path, processes: int, env: dict[str, str] | None = None) -> bytes:
    """The prompts file as a command of its own makes it."""
    arguments = ["prepare", "--plan", str(root / "plan.json"), "--workspace", str(root), "--dataset", "alpha"]
    done = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
        env={"PATH": os.environ["PATH"], "HOME": str(root), "DRAFTMILL_PROCESSES": str(processes)} | (env or {}),
    )
    assert done.returncode == 0, done.stderr
    return (root / "campaigns/test/prompts/alpha.jsonl").read_bytes()


@pytest.mark.parametrize("processes", [0, 2])
def test_from_one_file_in_any_folder(plan: Plan, tmp_path: Path, processes: int) -> None:

    zipapp = build(tmp_path / "code")
    assert prepare_with([sys.executable, str(zipapp)], tmp_path, processes) == expected(plan, tmp_path)


@pytest.mark.skipif(not OTHER_PYTHON, reason="DRAFTMILL_TRANSFORMERS4_PYTHON names no Python with transformers 4.57")
@pytest.mark.parametrize("processes", [0, 2])
def test_from_transformers_4(plan: Plan, tmp_path: Path, processes: int) -> None:
    made = prepare_with([OTHER_PYTHON, str(build(tmp_path / "code"))], tmp_path, processes)
    version = read_json(tmp_path / "campaigns/test/prompts/alpha.meta.json")["transformers"]
    assert version.startswith("4."), version
    assert made == expected(plan, tmp_path)
