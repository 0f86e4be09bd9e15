"""The step `accept`: the last gate before a corpus is announced."""

from __future__ import annotations

from typing import Any

from draftmill.corpus.verify import verify
from draftmill.errors import PermanentError
from draftmill.jobs.step import StepContext


def run(ctx: StepContext) -> dict[str, Any]:
    """Check the corpus of the campaign as its readers will. PermanentError names the first faults."""
    folder = ctx.folder.corpus
    report = verify(folder)
    if report.faults:
        raise PermanentError(f"{folder}: {'; '.join(report.faults[:3])}; merge again")
    return {"corpus": str(folder), "manifest_sha256": report.manifest_sha256, "verified_rows": report.rows, "trainers": {}}
