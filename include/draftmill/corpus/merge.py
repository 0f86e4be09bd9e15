"""The step `merge`: the records of all data sets -> one corpus, in place of the previous one."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftmill.corpus.card import write_card
from draftmill.corpus.charts import draw, text_charts
from draftmill.corpus.decoder import load_decoder
from draftmill.corpus.disk import room_needed
from draftmill.corpus.exports.conversations import Reader
from draftmill.corpus.exports.plan import Exports
from draftmill.corpus.manifest import build_manifest, intact, manifest_path, read_manifest, write_manifest
from draftmill.corpus.record import Row
from draftmill.corpus.records import RecordsReader
from draftmill.corpus.records_meta import only_one
from draftmill.corpus.request import MergeRequest, gather
from draftmill.corpus.selection import FATES, HELD_OUT, TRAIN, Selector
from draftmill.corpus.statistics import taken
from draftmill.corpus.versions import Versions, sync_files
from draftmill.errors import DraftmillError, PermanentError
from draftmill.jobs.step import StepContext
from draftmill.spec.results import MergeResult

if TYPE_CHECKING:
    from draftmill.corpus.selection import Table

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
            manifest = Merge(ctx, request, folder).build(parent=manifest["sha256"] if manifest else None)
            ctx.progress(f"{manifest['totals']['rows']} rows, {manifest['totals']['held_out_rows']} held out; making them durable")
            versions.publish(folder, manifest["sha256"])
        return _result(ctx, manifest, reused=False)


class Merge:
    """One build of a corpus in a folder that nobody reads yet."""

    def __init__(self, ctx: StepContext, request: MergeRequest, folder: Path) -> None:
        self.ctx = ctx
        self.request = request
        self.folder = folder
        self.exports = Exports(folder, ctx.plan.corpus, request.prompts, self._reader())

    def _reader(self) -> Reader | None:
        """What makes rows readable. Only the conversations need it; the card does without its sample rows."""
        try:
            return Reader(load_decoder(self.ctx, self.request.model["tokenizer_hash"]), self.request.prompts)
        except DraftmillError as error:
            if "conversations" in self.ctx.plan.corpus.exports:
                raise
            self.ctx.progress(f"the card has no sample rows: {error}")
            return None

    def build(self, parent: str | None) -> dict[str, Any]:
        """Select, write, describe. `parent`: hash of the manifest that this one replaces. Returns the manifest with its own hash added."""
        table = self._select()
        self._write(table, TRAIN)
        if (table["fate"] == HELD_OUT).any():
            self._write(table, HELD_OUT)
        with ThreadPoolExecutor(1, thread_name_prefix="sync") as pool:
            # The disk takes its time for the rows; what they are is written meanwhile.
            durable = pool.submit(sync_files, list(self.exports.hashes))
            manifest = build_manifest(self.ctx, self.request, table, self.exports, parent)
            self._say_coverage(manifest["exports"]["vocabulary"])
            self._write_card(table, manifest)
            durable.result()
        return write_manifest(self.folder, manifest, self.exports.hashes)

    def _say_coverage(self, vocabulary: dict[str, Any]) -> None:
        if vocabulary["draft_size"]:
            self.ctx.progress(
                f"a draft vocabulary of {vocabulary['draft_size']:,} covers {vocabulary['coverage']:.2%} of the generated tokens"
            )

    def _select(self) -> Table:
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

    def _write(self, table: Table, fate: int) -> None:
        chosen = table[table["fate"] == fate]
        total, done, last = len(chosen), 0, time.monotonic()
        with self.exports.open(FATES[fate]) as sinks:
            for row in self._rows(chosen):
                for sink in sinks:
                    sink.add(row)
                done += 1
                if time.monotonic() - last > PROGRESS_S:
                    last = time.monotonic()
                    self.ctx.check_stop()
                    self.ctx.progress(f"{FATES[fate]}: {done} of {total} rows written", done=done, total=total)

    def _rows(self, chosen: Table) -> Iterator[Row]:
        places = zip(*(map(int, chosen[name]) for name in ("source", "head_offset", "head_size", "first_id")), strict=True)
        with contextlib.ExitStack() as stack:
            readers = [stack.enter_context(RecordsReader(source.path)) for source in self.request.sources]
            for source, head_offset, head_size, first_id in places:
                yield readers[source].row(head_offset, head_size, first_id)

    def _write_card(self, table: Table, manifest: dict[str, Any]) -> None:
        rows = taken(table)
        charts = draw(self.folder / "charts", rows, self.request.sources)
        samples = [self.exports.reader.read(row) for row in self._rows(self._examples(table))] if self.exports.reader else []
        text = write_card(manifest, charts, text_charts(rows, self.request.sources), samples)
        (self.folder / "README.md").write_text(text, encoding="utf-8")

    @staticmethod
    def _examples(table: Table) -> Table:
        """The first training row of each data set in the corpus's own random order; the data sets in the order of the plan."""
        import numpy as np

        training = table[table["fate"] == TRAIN]
        _, first = np.unique(training["source"], return_index=True)
        examples: Table = training[first]
        return examples


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
        datasets={name: entry["train"] + entry["held_out"] for name, entry in manifest["datasets"].items()},
        reused=reused,
    ).model_dump()
