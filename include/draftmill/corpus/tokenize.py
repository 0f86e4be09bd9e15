"""The step `tokenize`: prompts + journal of one data set -> token-exact records."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from draftmill.corpus.decoder import load_decoder
from draftmill.corpus.disk import room_needed
from draftmill.corpus.id_text import read_row_of_arrays
from draftmill.corpus.join import Refused, join
from draftmill.corpus.prompt_index import PromptIndex
from draftmill.corpus.prompts_meta import PromptsMeta, read_prompts_meta
from draftmill.corpus.provenance import describe_servers
from draftmill.corpus.quality.characters import ReplacementCharacters
from draftmill.corpus.quality.doubts import Quality, Test, standard_tests
from draftmill.corpus.record import Row
from draftmill.corpus.records import RecordsWriter
from draftmill.corpus.records_meta import SCHEMA, FileMark, JournalMark, RecordsMeta, is_whole, only_one, read_meta
from draftmill.corpus.tally import Tally, shares, tally_warnings
from draftmill.errors import DraftmillError, PermanentError
from draftmill.files import write_json
from draftmill.generation.journal import read_responses
from draftmill.generation.response import Response
from draftmill.jobs.step import StepContext
from draftmill.spec.plan import Plan
from draftmill.spec.results import TokenizeResult

PROGRESS_S = 3.0


def run(ctx: StepContext) -> dict[str, Any]:
    """Build the records of `ctx.dataset`, or keep those on disk where nothing they depend on has changed.

    Raises PermanentError where there is nothing to build from, where nothing is left, or where more is dropped than the campaign allows;
    the records of an earlier run then stay as they were.
    """
    dataset = ctx.dataset.name
    path = ctx.folder.records(dataset)
    with only_one(path.with_suffix(".lock"), f"tokenize {dataset}"), room_needed(path.parent, f"tokenize {dataset}"):
        prompts = read_prompts_meta(ctx.folder, dataset)
        journal = ctx.folder.journal(dataset)
        if not journal.is_file():
            raise PermanentError(f"{journal}: no such file; generate {dataset} first")
        mark = JournalMark.of(journal)
        request = request_digest(ctx.plan, prompts, mark.sha256)
        known = read_meta(ctx.folder, dataset)
        if known and known.request == request and is_whole(path, known):
            ctx.progress(f"{dataset}: nothing changed, {known.rows_kept} records kept from before", done=known.rows_kept)
            return _result(known, path)
        meta = Tokenization(ctx, prompts, request, mark, known).build(path)
        write_json(ctx.folder.records_meta(dataset), meta.model_dump())
        losses = f"dropped: {shares(meta.dropped, meta.rows_in)}" if meta.dropped else "none dropped"
        ctx.progress(f"{dataset}: {meta.rows_kept} of {meta.rows_in} responses kept, {losses}", done=meta.rows_in, tokens=meta.loss_tokens)
        return _result(meta, path)


def request_digest(plan: Plan, prompts: PromptsMeta, journal_sha256: str) -> str:
    """Hex digest of all that the records depend on: prompts, responses, policies, and the form of a record."""
    parts = [SCHEMA, plan.seed, prompts.sha256, prompts.model, journal_sha256, plan.quality.model_dump()]
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _result(meta: RecordsMeta, path: Path) -> dict[str, Any]:
    return TokenizeResult(
        dataset=meta.dataset,
        rows_in=meta.rows_in,
        rows_kept=meta.rows_kept,
        dropped=meta.dropped,
        loss_tokens=meta.loss_tokens,
        total_tokens=meta.total_tokens,
        path=str(path),
    ).model_dump()


class Tokenization:
    """One build of the records of a data set. `known`: what is there from before."""

    def __init__(self, ctx: StepContext, prompts: PromptsMeta, request: str, mark: JournalMark, known: RecordsMeta | None) -> None:
        self.ctx = ctx
        self.dataset = ctx.dataset.name
        self.prompts = prompts
        self.request = request
        self.mark = mark
        self.known = known
        self.not_checked: dict[str, str] = {}
        self.quality = Quality(ctx.plan.quality, standard_tests(prompts) | self._text_tests())
        self.tally = Tally()
        self.journal: Counter[str] = Counter()

    def _text_tests(self) -> dict[str, Test]:
        """The test that needs the tokenizer; a host without it can still tokenize, unless the policy depends on the finding."""
        try:
            decode = load_decoder(self.ctx, self.prompts.tokenizer_hash)
        except DraftmillError as error:
            if self.ctx.plan.quality.replacement_characters == "drop":
                raise
            self.not_checked["replacement_characters"] = str(error)
            return {}
        return {"replacement_characters": ReplacementCharacters(decode, self.prompts.vocab_size)}

    def build(self, path: Path) -> RecordsMeta:
        """Write the records to `path`, whole or not at all, and describe them."""
        with RecordsWriter(path) as writer:
            for row in self._rows():
                writer.add(row)
            for warning in tally_warnings(self.dataset, self.tally, self.quality.flagged, self.ctx.plan.quality):
                self.ctx.progress(f"{self.dataset}: warning: {warning}")
        return self._describe(writer)

    def _rows(self) -> Iterator[Row]:
        """The rows to keep, in the order of the journal."""
        last = time.monotonic()
        with PromptIndex(self.ctx.folder.prompts(self.dataset), self.ctx.plan.seed) as prompts:
            for response in read_responses(self.ctx.folder.journal(self.dataset), self.journal, read_row_of_arrays):
                self.ctx.check_stop()
                self.tally.read(response)
                row = self._judged(response, prompts)
                if row is not None:
                    self.tally.keep(response, row)
                    yield row
                if time.monotonic() - last > PROGRESS_S:
                    last = time.monotonic()
                    self.ctx.progress(f"{self.dataset}: {self.tally.rows_in} responses read", done=self.tally.rows_in)

    def _judged(self, response: Response, prompts: PromptIndex) -> Row | None:
        try:
            row = join(response, prompts, self.prompts, self.dataset)
        except Refused as refused:
            self.tally.drop(response, refused.reason)
            return None
        reason = self.quality.reason_to_drop(row)
        if reason is not None:
            self.tally.drop(response, reason)
            return None
        return row

    def _describe(self, writer: RecordsWriter) -> RecordsMeta:
        tally = self.tally
        return RecordsMeta(
            request=self.request,
            dataset=self.dataset,
            rows_in=tally.rows_in,
            rows_kept=tally.rows_kept,
            dropped=dict(tally.dropped),
            flagged=dict(self.quality.flagged),
            named=tally.named,
            loss_tokens=tally.loss_tokens,
            total_tokens=tally.total_tokens,
            finish_reasons=dict(tally.finish_reasons),
            heads=FileMark(size=writer.heads.size, sha256=writer.heads.sha256),
            ids=FileMark(size=writer.ids.size, sha256=writer.ids.sha256),
            model=self.prompts.model,
            prompts=self.prompts.model_dump(),
            journal=self.mark.model_copy(
                update={"responses": tally.rows_in, "completion_tokens": tally.tokens_in, "lines": dict(self.journal)}
            ),
            not_checked=self.not_checked,
            servers=dict(tally.servers),
            described_servers=describe_servers(self.ctx.workspace, tally.servers, self.known.described_servers if self.known else {}),
            samplings=tally.samplings_by_rows(),
        )
