"""The step `accept`: the last gate before a corpus is announced."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from draftmill.corpus.checks.trainers import default_python, faults, run_loaders
from draftmill.corpus.disk import room_needed
from draftmill.corpus.manifest import read_manifest
from draftmill.corpus.verify import verify
from draftmill.errors import PermanentError
from draftmill.jobs.step import StepContext
from draftmill.spec.results import AcceptResult

_SCRATCH = ".accept-"


def run(ctx: StepContext) -> dict[str, Any]:
    """Check the campaign's corpus as its readers will: from its files, and with the trainers' own loaders as the plan asks.

    Returns an AcceptResult as a dict. Raises PermanentError with the first faults.
    """
    if not ctx.folder.corpus.exists():
        raise PermanentError(f"{ctx.folder.corpus}: there is no corpus; merge first")
    folder = ctx.folder.corpus.resolve()
    sha256 = _verify(ctx, folder)
    manifest = read_manifest(folder)
    if manifest is None or manifest["sha256"] != sha256:
        raise PermanentError(f"{folder}: changed while it was checked; accept again")
    trainers = _load(ctx, folder, manifest) if ctx.plan.corpus.acceptance != "verify" else {}
    totals = manifest["totals"]
    return AcceptResult(
        campaign=ctx.plan.campaign,
        corpus=str(folder),
        manifest_sha256=sha256,
        rows=totals["rows"],
        held_out_rows=totals["held_out_rows"],
        loss_tokens=totals["loss_tokens"],
        total_tokens=totals["total_tokens"],
        trainers=trainers,
    ).model_dump()


def _verify(ctx: StepContext, folder: Path) -> str:
    def tick(doing: str, rows: int) -> None:
        ctx.check_stop()
        ctx.progress(f"verify: {doing}", done=rows)

    report = verify(folder, tick)
    if report.faults:
        more = len(report.faults) + report.left_out - 3
        raise PermanentError(f"{folder}: {'; '.join(report.faults[:3])}{f'; and {more} more' if more > 0 else ''}; merge again")
    return report.manifest_sha256


def _load(ctx: StepContext, folder: Path, manifest: dict[str, Any]) -> dict[str, str]:
    pythons = [str(ctx.workspace.resolve(python)) for python in ctx.plan.corpus.trainers_python] or [default_python()]
    for left in ctx.folder.root.glob(f"{_SCRATCH}*"):
        shutil.rmtree(left)
    ctx.progress(f"running the trainers' loaders that {', '.join(pythons)} have")
    with room_needed(ctx.folder.root, "accept"), tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=ctx.folder.root) as scratch:
        answers = run_loaders(pythons, folder, manifest, Path(scratch), ctx.stop)
    found = faults(answers, manifest, required=ctx.plan.corpus.acceptance == "required")
    if found:
        raise PermanentError(f"{folder}: {'; '.join(found)}")
    told = {
        name: answer.get("absent") or f"accepted: {answer['samples']} rows, {answer['loss_tokens']} loss tokens"
        for name, answer in answers.items()
    }
    for name, text in told.items():
        ctx.progress(f"{name}: {text}")
    return told
