"""The `prepare` step: read a data set's sources, order its prompts, render them to token ids, write the prompts file.

Two passes. The first reads every row, makes ids and order keys, and keeps the rows that come first (`scan`, `spill`, `sorting`); the
second renders those, in order (`rendering`). Both run in worker processes where the source is worth it; the result does not depend on
how many.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from draftmill.errors import PermanentError, TemporaryError
from draftmill.files import FileLock, atomic_writer, write_json
from draftmill.jobs.step import StepContext
from draftmill.prompts.rendering import BATCH, Candidate, Line, RenderRequest, describe_tokenizer, render_batch
from draftmill.prompts.request import SCHEMA, request_digest, reusable
from draftmill.prompts.room import prompt_room
from draftmill.prompts.scan import ScanCounts, ScanRequest
from draftmill.prompts.sorting import Sorted, scan_all
from draftmill.prompts.spill import bucket_count
from draftmill.prompts.tokenizer import TokenizerRequest, tokenizer_request
from draftmill.prompts.workers import Workers
from draftmill.sources.locate import Located, locate, units_of
from draftmill.spec.results import PrepareResult

_IN_PROCESS_BYTES = 8 << 20
"""Sources smaller than this are prepared before a worker would have started."""
_MOST_PROCESSES = 16
_TALK_S = 2.0


def run(ctx: StepContext) -> dict[str, Any]:
    """Make `folder.prompts(dataset)` and its meta file, or find them made. Returns a PrepareResult as a dict.

    Raises PermanentError (sources, columns, tokenizer), TemporaryError (hub, memory) or StoppedError; the file that was there before then
    stays as it was.
    """
    return Preparation(ctx).run().model_dump()


@dataclass
class Tally:
    """What became of the candidates, and of the file."""

    prompts: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    special_text: int = 0
    bytes: int = 0
    sha256: str = ""


class Preparation:
    """One run of the step."""

    def __init__(self, ctx: StepContext) -> None:
        self.ctx = ctx
        self.dataset = ctx.dataset
        self.path = ctx.folder.prompts(self.dataset.name)
        self._talked = 0.0

    def run(self) -> PrepareResult:
        """Reuse what is there, or make it under a lock."""
        located = [locate(source, self.ctx.workspace.resolve) for source in self.dataset.sources]
        tokenizer = tokenizer_request(self.ctx.plan.server.profile, self.ctx.workspace)
        request = request_digest(self.ctx.plan, self.dataset, located, tokenizer)
        found = reusable(self.ctx.folder, self.dataset.name, request)
        if found is not None:
            self.ctx.progress(f"{found.prompts} prompts are there, made from the same sources", done=found.prompts)
            return found
        lock = FileLock(self.path.parent / f".{self.dataset.name}.lock")
        if not lock.acquire(f"prepare, process {os.getpid()}"):
            raise TemporaryError(f"{self.dataset.name} is being prepared by another process ({lock.holder()}); wait for it, then retry")
        try:
            return self._make(located, tokenizer, request)
        finally:
            lock.release()

    def _make(self, located: list[Located], tokenizer: TokenizerRequest, request: str) -> PrepareResult:
        for stale in self.path.parent.glob(f".{self.dataset.name}.work-*"):
            shutil.rmtree(stale, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=f".{self.dataset.name}.work-", dir=self.path.parent))
        size = sum(_local_bytes(source) for source in located)
        try:
            with Workers(process_count(size), self.ctx.stop) as workers:
                policy = self.ctx.plan.special_token_text
                about = workers.each(functools.partial(describe_tokenizer, tokenizer, policy))
                limits = (self.dataset.max_prompt_tokens, prompt_room(self.dataset, about["context_length"]))
                render = RenderRequest(tokenizer, policy, self.dataset.name, *limits)
                data, tally = self._fill(workers, located, work, bucket_count(size), render)
                return self._finish(data, tally, {"request": request, **about, "sources": [source.about for source in located]})
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _fill(self, workers: Workers, located: list[Located], work: Path, buckets: int, render: RenderRequest) -> tuple[Sorted, Tally]:
        """Scan and render, and scan again for more candidates where too many of the first could not be used."""
        units = [unit for index, source in enumerate(located) for unit in units_of(index, source)]
        wanted = self.dataset.max_prompts
        keep = None if wanted is None else wanted + wanted // 4 + 1000
        adapters = tuple(source.source.adapter or self.dataset.adapter for source in located)
        columns = tuple(sorted(self.dataset.columns.items()))
        while True:
            scan = ScanRequest(adapters, columns, self.dataset.turns, self.ctx.plan.seed, keep, buckets, str(work))
            data = scan_all(workers, units, scan, self._report_scan)
            try:
                with atomic_writer(self.path) as stream:
                    return data, self._render(workers, render, data, stream)
            except _TooFewError:
                keep = None if keep is None else keep * 4

    def _render(self, workers: Workers, request: RenderRequest, data: Sorted, stream: IO[bytes]) -> Tally:
        tally = Tally()
        digest = hashlib.sha256()
        wanted = self.dataset.max_prompts
        batches = _batches(data.candidates())
        for lines in workers.run(functools.partial(render_batch, request, batch) for batch in batches):
            for line in lines:
                if tally.prompts == wanted:
                    break
                _count(tally, line)
                if line[0] is not None:
                    stream.write(line[0])
                    digest.update(line[0])
                    tally.bytes += len(line[0])
            if tally.prompts == wanted:
                break
            self._talk(f"{tally.prompts} prompts rendered", done=tally.prompts)
        if not data.complete and tally.prompts != wanted:
            raise _TooFewError
        tally.sha256 = digest.hexdigest()
        return tally

    def _finish(self, data: Sorted, tally: Tally, about: dict[str, Any]) -> PrepareResult:
        distinct = sum(len(keys) for keys, _ in data.distinct())
        skipped = data.counts.skipped + tally.skipped
        skipped["duplicate"] += data.counts.usable - distinct
        skipped["over_max_prompts"] += distinct - tally.prompts - sum(tally.skipped.values())
        numbers = {
            "dataset": self.dataset.name,
            "prompts": tally.prompts,
            "rows_read": data.counts.rows_read,
            "rows_used": tally.prompts,
            "skipped": dict(sorted((+skipped).items())),
        }
        if not tally.prompts:
            raise PermanentError(
                f"{self.dataset.name}: none of {data.counts.rows_read} rows gave a prompt ({_listed(numbers['skipped'])}); check the source"
            )
        write_json(
            self.ctx.folder.prompts_meta(self.dataset.name),
            {
                "schema": SCHEMA,
                **numbers,
                **about,
                "repaired": dict(data.counts.repaired),
                "special_token_text": tally.special_text,
                "bytes": tally.bytes,
                "sha256": tally.sha256,
            },
        )
        self.ctx.progress(
            f"{tally.prompts} prompts of {data.counts.rows_read} rows; skipped: {_listed(numbers['skipped'])}", done=tally.prompts
        )
        return PrepareResult(**numbers, path=str(self.path))

    def _report_scan(self, done: int, units: int, counts: ScanCounts) -> None:
        self._talk(f"{counts.rows_read} rows read, {done} of {units} parts", done=done, rows=counts.rows_read)

    def _talk(self, message: str, **numbers: int) -> None:
        now = time.monotonic()
        if now - self._talked >= _TALK_S:
            self._talked = now
            self.ctx.progress(message, **numbers)


class _TooFewError(Exception):
    """The candidates ran out before the wanted number of prompts, and the source has more."""


def _count(tally: Tally, line: Line) -> None:
    _, reason, special_text = line
    tally.special_text += special_text
    if reason is None:
        tally.prompts += 1
    else:
        tally.skipped[reason] += 1


def _batches(stream: Iterator[Candidate]) -> Iterator[list[Candidate]]:
    while batch := list(itertools.islice(stream, BATCH)):
        yield batch


def _listed(skipped: Any) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in skipped.items()) or "none"


def _local_bytes(located: Located) -> int:
    """Bytes to read, as far as they are known: of local files. What comes over the network is taken as large."""
    return int(located.about.get("bytes", 1 << 30))


def process_count(source_bytes: int) -> int:
    """Worker processes for a source: none for a small one; DRAFTMILL_PROCESSES decides where it is set."""
    told = os.environ.get("DRAFTMILL_PROCESSES", "")
    if told.isdigit():
        return int(told)
    return 0 if source_bytes < _IN_PROCESS_BYTES else min(_MOST_PROCESSES, len(os.sched_getaffinity(0)))
