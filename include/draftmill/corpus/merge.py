"""The step `merge`: the records of all data sets -> one corpus, in place of the previous one."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftmill.corpus.disk import room_needed
from draftmill.corpus.exports.plan import Exports
from draftmill.corpus.exports.sink import Sink
from draftmill.corpus.manifest import build_manifest, intact, manifest_path, read_manifest, write_manifest
from draftmill.corpus.records import RecordsReader
from draftmill.corpus.records_meta import only_one
from draftmill.corpus.request import MergeRequest, gather
from draftmill.corpus.selection import FATES, HELD_OUT, TRAIN, Selector
from draftmill.corpus.versions import Versions
from draftmill.errors import PermanentError
from draftmill.jobs.step import StepContext
from draftmill.spec.results import MergeResult

if TYPE_CHECKING:
    import pandas as pd

PROGRESS_S = 3.0


def run(ctx: StepContext) -> dict[str, Any]:
    """Merge the records of the plan's data sets, or keep the corpus on disk where nothing has changed.

    The new corpus is built beside the current one, which stays whole and readable until a single rename puts the new one in its place.
    Raises PermanentError where records are missing or out of date (unless the plan allows a partial merge), where they do not fit
    together, or where nothing is left; TemporaryError where the disk is full.
    """
    versions = Versions(ctx.folder)
    with only_one(versions.lock, f"merge {ctx.plan.campaign}"), room_needed(ctx.folder.root, "merge"):
        request = gather(ctx)
        current = versions.current()
        manifest = read_manifest(current) if current else None
        if current and manifest and manifest["request"] == request.digest and intact(current, manifest):
            ctx.progress(f"nothing changed: the corpus of {manifest['totals']['rows']} rows is kept", done=manifest["totals"]["rows"])
            return _result(ctx, manifest, reused=True)
        with versions.building() as folder:
            manifest = Merge(ctx, request, folder).build(parent=current)
            versions.publish(folder, manifest["sha256"])
        return _result(ctx, manifest, reused=False)


class Merge:
    """One build of a corpus in a folder that nobody reads yet."""

    def __init__(self, ctx: StepContext, request: MergeRequest, folder: Path) -> None:
        self.ctx = ctx
        self.request = request
        self.folder = folder
        self.hashes: dict[Path, str] = {}

    def build(self, parent: Path | None) -> dict[str, Any]:
        """Select, write, describe. Returns the manifest with its own hash added."""
        table = self._select()
        exports = Exports(self.folder, self.ctx.plan.corpus, self.request)
        self._write(table, TRAIN, exports.train_sinks())
        if (table["fate"] == HELD_OUT).any():
            self._write(table, HELD_OUT, exports.held_out_sinks())
        manifest = build_manifest(self.ctx, self.request, table, exports, parent)
        return write_manifest(self.folder, manifest, self.hashes)

    def _select(self) -> pd.DataFrame:
        selector = Selector(self.ctx.plan.corpus, self.ctx.plan.seed)
        for number, source in enumerate(self.request.sources):
            self.ctx.check_stop()
            self.ctx.progress(f"reading {source.name}: {source.meta.rows_kept} records")
            selector.read(number, source)
        table = selector.table()
        if not (table["fate"] == TRAIN).any():
            fates = ", ".join(f"{FATES[fate]} {count}" for fate, count in Counter(table["fate"].tolist()).items())
            raise PermanentError(f"merge: no row is left for training ({fates}); see the campaign's corpus policy")
        return table

    def _write(self, table: pd.DataFrame, fate: int, sinks: list[Sink]) -> None:
        chosen = table[table["fate"] == fate]
        total, done, last = len(chosen), 0, time.monotonic()
        places = zip(*(chosen[name].tolist() for name in ("source", "head_offset", "head_size", "first_id")), strict=True)
        with contextlib.ExitStack() as stack:
            readers = [stack.enter_context(RecordsReader(source.path)) for source in self.request.sources]
            for sink in sinks:
                stack.enter_context(sink)
            for source, head_offset, head_size, first_id in places:
                row = readers[source].row(head_offset, head_size, first_id)
                for sink in sinks:
                    sink.add(row)
                done += 1
                if time.monotonic() - last > PROGRESS_S:
                    last = time.monotonic()
                    self.ctx.check_stop()
                    self.ctx.progress(f"{FATES[fate]}: {done} of {total} rows written", done=done, total=total)
        for sink in sinks:
            self.hashes.update(sink.hashes)


def _result(ctx: StepContext, manifest: dict[str, Any], reused: bool) -> dict[str, Any]:
    totals = manifest["totals"]
    return MergeResult(
        campaign=ctx.plan.campaign,
        train=str(ctx.folder.corpus / manifest["train"]),
        manifest=str(manifest_path(ctx.folder.corpus)),
        manifest_sha256=manifest["sha256"],
        rows=totals["rows"],
        held_out_rows=totals["held_out_rows"],
        loss_tokens=totals["loss_tokens"],
        total_tokens=totals["total_tokens"],
        datasets={name: entry["rows"] for name, entry in manifest["datasets"].items()},
        reused=reused,
    ).model_dump()
