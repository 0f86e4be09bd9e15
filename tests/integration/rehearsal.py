"""A copy of include/ whose steps are those of rehearsal_steps.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]

_ENTRIES = """

STEPS = {
    verb: StepEntry(f"draftmill.rehearsal:{verb.replace('-', '_')}", entry.per_dataset, entry.help) for verb, entry in STEPS.items()
}
"""


def rehearsal_tree(folder: Path) -> Path:
    """Copy include/ into `folder` and put the rehearsal's steps in place of the real ones. Returns the copy, for PYTHONPATH."""
    include = folder / "include"
    shutil.copytree(REPOSITORY / "include", include, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(__file__).with_name("rehearsal_steps.py"), include / "draftmill" / "rehearsal.py")
    with (include / "draftmill" / "jobs" / "step.py").open("a") as stream:
        stream.write(_ENTRIES)
    return include


def tell(workspace: Path, verb: str, dataset: str | None = None, **script: Any) -> Path:
    """Tell a step to do something else from its next start on; deleting the returned file takes it back."""
    path = workspace / "control" / (f"{verb}.{dataset}.json" if dataset else f"{verb}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(script))
    return path
