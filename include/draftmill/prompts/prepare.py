"""The `prepare` step: read a data set's sources, order its prompts, render them to token ids, write the prompts file.

Two passes. The first reads every row, makes ids and order keys, and keeps the rows that come first (`scan`, `spill`, `sorting`); the
second renders those, in order (`rendering`, `output`). Both run in worker processes where the source is worth it; the result does not
depend on how many.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill.errors import DraftmillError, PermanentError, TemporaryError
from draftmill.files import FileLock, atomic_writer, read_json, write_json
from draftmill.jobs.step import StepContext
from draftmill.prompts.answered import AnsweredPrompts
from draftmill.prompts.earlier import Earlier, KeyIndex, announced, gather, index_path, write_index
from draftmill.prompts.output import PromptWriter, Tally, TooFew
from draftmill.prompts.rendering import RenderRequest, describe_tokenizer
from draftmill.prompts.request import SCHEMA, request_digest, reusable, source_digest
from draftmill.prompts.room import prompt_room
from draftmill.prompts.scan import ScanCounts
from draftmill.prompts.sorting import SortedRows, known_size, scan_all
from draftmill.prompts.tokenizer import TokenizerRequest, tokenizer_request
from draftmill.prompts.workers import Workers
from draftmill.sources.locate import Located, locate
from draftmill.spec.plan import PromptOrigin
from draftmill.spec.results import PrepareResult

_IN_PROCESS_BYTES = 8 << 20
"""Sources smaller than this are prepared before a worker would have started."""
_MOST_PROCESSES = 16
_TALK_S = 2.0
_WAIT_S = 10.0


def run(ctx: StepContext) -> dict[str, Any]:
    """Make `folder.prompts(dataset)` and its meta file, or find them made. Returns a PrepareResult as a dict.

    Raises PermanentError (sources, columns, tokenizer), TemporaryError (hub, memory) or StoppedError; the file that was there before then
    stays as it was.
    """
    return Preparation(ctx).run().model_dump()


@dataclass(frozen=True)
class _DataSet:
    """A data set with its sources found; without a digest where they cannot be."""

    origin: PromptOrigin
    located: list[Located]
    digest: str | None


class Preparation:
    """One run of the step."""

    def __init__(self, ctx: StepContext) -> None:
        self.ctx = ctx
        self.dataset = ctx.dataset
        self.path = ctx.folder.prompts(self.dataset.name)
        self._talked = 0.0
        self._doing = "loading the tokenizer"

    def run(self) -> PrepareResult:
        """Reuse what is there, or make it under a lock."""
        own = self._find(self.dataset.origin)
        earlier = [self._find_if_possible(origin) for origin in self.ctx.plan.before(self.dataset.name)]
        tokenizer = tokenizer_request(self.ctx.plan.server.profile, self.ctx.workspace)
        before = [dataset.digest for dataset in earlier]
        request = request_digest(self.ctx.plan, self.dataset.name, own.digest or "", before, tokenizer)
        found = reusable(self.ctx.folder, self.dataset.name, request)
        if found is not None:
            self.ctx.progress(f"{self.dataset.name}: {found.prompts} prompts are there, made from the same sources", done=found.prompts)
            return found
        with self._alone(), self._work_folder() as work, self._workers(own.located) as workers:
            return self._make(workers, work, own, earlier, tokenizer, request)

    def _workers(self, located: list[Located]) -> Workers:
        return Workers(process_count(located), self.ctx.stop, lambda: self._talk(f"{self.dataset.name}: {self._doing}", every=_WAIT_S))

    def _find(self, origin: PromptOrigin) -> _DataSet:
        meta = read_json(self.ctx.folder.prompts_meta(origin.name))
        recorded = meta.get("sources", []) if isinstance(meta, dict) else []
        located = [locate(source, self.ctx.workspace.resolve, recorded) for source in origin.sources]
        return _DataSet(origin, located, source_digest(self.ctx.plan.seed, origin, located))

    def _find_if_possible(self, origin: PromptOrigin) -> _DataSet:
        try:
            return self._find(origin)
        except DraftmillError:
            return _DataSet(origin, [], None)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        lock = FileLock(self.path.parent / f".{self.dataset.name}.lock")
        if not lock.acquire(f"process {os.getpid()}"):
            raise TemporaryError(f"{self.dataset.name} is being prepared by {lock.holder() or 'another process'}; wait for it, then retry")
        try:
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def _work_folder(self) -> Iterator[Path]:
        # What a killed run left behind; the lock says that it is nobody's any more.
        for stale in self.path.parent.glob(f".{self.dataset.name}.work-*"):
            shutil.rmtree(stale, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=f".{self.dataset.name}.work-", dir=self.path.parent))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _make(
        self, workers: Workers, work: Path, own: _DataSet, earlier: list[_DataSet], tokenizer: TokenizerRequest, request: str
    ) -> PrepareResult:
        policy = self.ctx.plan.special_token_text
        about = workers.each(functools.partial(describe_tokenizer, tokenizer, policy))
        room = prompt_room(self.dataset, about["context_length"])
        render = RenderRequest(tokenizer, policy, self.dataset.name, self.dataset.max_prompt_tokens, room)
        wanted = self.dataset.max_prompts
        keep = None if wanted is None else wanted + wanted // 4 + 1000
        index = index_path(self.path.parent, self.dataset.name, own.digest or "")
        with announced(index, self.dataset.name):
            rows = self._scan(workers, work, own, keep)
            write_index(index, rows.distinct(), self.dataset.name)
        before, missing = self._gather(workers, work, earlier)
        while True:
            try:
                tally, left = self._write(workers, render, rows, index, before)
                break
            except TooFew:
                keep = None if keep is None else keep * 4
                rows = self._scan(workers, work, own, keep)
        sources = [{**source.about, "rows_read": read} for source, read in zip(own.located, rows.rows_by_source, strict=True)]
        about = {"request": request, **about, "sources": sources, "not_compared": missing}
        return self._finish(rows.counts, tally, left, about)

    def _scan(self, workers: Workers, work: Path, dataset: _DataSet, keep: int | None) -> SortedRows:
        def report(done: int, units: int, counts: ScanCounts) -> None:
            self._doing = f"{counts.rows_read} rows of {dataset.origin.name} read, {done} of {units} parts"
            self._talk(f"{self.dataset.name}: {self._doing}", done=done, rows=counts.rows_read)

        return scan_all(workers, dataset.origin, dataset.located, self.ctx.plan.seed, keep, work, report)

    def _gather(self, workers: Workers, work: Path, earlier: list[_DataSet]) -> tuple[Earlier, list[str]]:
        def maker(dataset: _DataSet, path: Path) -> None:
            write_index(path, self._scan(workers, work, dataset, keep=0).distinct(), dataset.origin.name)

        wanted = []
        for dataset in earlier:
            path = index_path(self.path.parent, dataset.origin.name, dataset.digest or "")
            if dataset.digest is not None:
                wanted.append((dataset.origin.name, path, functools.partial(maker, dataset, path)))
        found, missing = gather(self.ctx, wanted)
        return found, missing + [dataset.origin.name for dataset in earlier if dataset.digest is None]

    def _write(self, workers: Workers, render: RenderRequest, rows: SortedRows, index: Path, before: Earlier) -> tuple[Tally, Counter[str]]:
        """Write the prompts file. The old meta file goes in the moment that the new prompts come, so that it never describes them."""
        answered = AnsweredPrompts(self.ctx.folder, self.dataset.name, self.ctx.plan.seed)
        with contextlib.closing(answered), atomic_writer(self.path) as stream:
            writer = PromptWriter(stream, answered, before)

            def report(done: int) -> None:
                self._doing = f"{done} prompts rendered"
                self._talk(f"{self.dataset.name}: {self._doing}", done=done)

            tally = writer.write(workers, render, rows, self.dataset.max_prompts, report)
            left = rows_left(rows, KeyIndex(index), before, tally)
            if not tally.prompts:
                raise PermanentError(
                    f"{self.dataset.name}: none of {rows.counts.rows_read} rows gave a prompt (skipped: {listed(left)}); check the source"
                )
            self.ctx.folder.prompts_meta(self.dataset.name).unlink(missing_ok=True)
        return tally, left

    def _finish(self, counts: ScanCounts, tally: Tally, left: Counter[str], about: dict[str, Any]) -> PrepareResult:
        numbers = {
            "dataset": self.dataset.name,
            "prompts": tally.prompts,
            "rows_read": counts.rows_read,
            "rows_used": counts.rows_read - sum(left.values()),
            "skipped": dict(sorted(left.items())),
        }
        meta = {
            "schema": SCHEMA,
            **numbers,
            **about,
            "repaired": dict(counts.repaired),
            "special_token_text": tally.special_text,
            "answered_only": len(tally.answered_only),
            "bytes": tally.bytes,
            "sha256": tally.sha256,
        }
        write_json(self.ctx.folder.prompts_meta(self.dataset.name), meta)
        self.ctx.progress(
            f"{self.dataset.name}: {tally.prompts} prompts of {counts.rows_read} rows; skipped: {listed(left)}", done=tally.prompts
        )
        return PrepareResult(**numbers, path=str(self.path))

    def _talk(self, message: str, *, every: float = _TALK_S, **numbers: int) -> None:
        now = time.monotonic()
        if now - self._talked >= every:
            self._talked = now
            self.ctx.progress(message, **numbers)


def rows_left(rows: SortedRows, index: KeyIndex, before: Earlier, tally: Tally) -> Counter[str]:
    """Reasons for all rows that became no prompt: rows read = rows used + these."""
    import numpy as np

    answered = np.array(tally.answered_only, np.uint64)
    answered = answered[index.contains(answered)]
    answered_shared = int(before.contains(answered).sum())
    shared = before.count(rows.distinct())
    left = rows.counts.skipped + tally.skipped
    left["duplicate"] += rows.counts.usable - len(index)
    left["in_earlier_dataset"] += shared - answered_shared
    candidates = tally.prompts - len(tally.answered_only) + sum(tally.skipped.values())
    left["over_max_prompts"] += len(index) - shared - candidates - (len(answered) - answered_shared)
    return +left


def listed(left: Counter[str]) -> str:
    """Reasons and counts for a person."""
    return ", ".join(f"{reason} {count}" for reason, count in sorted(left.items())) or "none"


def process_count(located: list[Located]) -> int:
    """Worker processes for a data set: none for a small one; DRAFTMILL_PROCESSES decides where it is set."""
    told = os.environ.get("DRAFTMILL_PROCESSES", "")
    if told.isdigit():
        return int(told)
    return 0 if known_size(located) < _IN_PROCESS_BYTES else min(_MOST_PROCESSES, len(os.sched_getaffinity(0)))
