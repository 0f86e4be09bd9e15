"""What a merge is asked for: the records it reads, and a digest of everything its result depends on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import orjson

from draftmill.corpus.prompts_meta import read_prompts_meta
from draftmill.corpus.records_meta import SCHEMA, RecordsMeta, read_meta
from draftmill.corpus.selection import Source
from draftmill.corpus.tokenize import request_digest
from draftmill.errors import PermanentError
from draftmill.generation.summary import outcome_on_disk
from draftmill.jobs.step import StepContext
from draftmill.spec.plan import Plan

MERGE_SCHEMA = 1
"""Of the corpus. A higher number makes every corpus be built again."""


@dataclass(frozen=True)
class MergeRequest:
    """Sources in the order of their names.

    left_out: data sets of the plan that are not among them, with the reason. incomplete: those that are, although more is to come.
    """

    sources: list[Source]
    digest: str
    left_out: dict[str, str] = field(default_factory=dict)
    incomplete: dict[str, str] = field(default_factory=dict)

    @property
    def model(self) -> dict[str, Any]:
        """Tokenizer, template and vocabulary that all rows share."""
        return self.sources[0].meta.model

    @property
    def prompts(self) -> dict[str, Any]:
        """What the prompts of the first source say about the model: special tokens, end tokens, path."""
        return self.sources[0].meta.prompts


def gather(ctx: StepContext) -> MergeRequest:
    """Look at the records of every data set of the plan.

    Raises PermanentError where some are missing, older than their journal, or of a data set that is not finished, unless the plan allows
    a partial merge (then the missing are left out, the others are used, and the manifest says so); always where none is left or two do
    not fit together.
    """
    sources: list[Source] = []
    left_out: dict[str, str] = {}
    incomplete: dict[str, str] = {}
    for name in sorted(ctx.plan.names):
        meta = read_meta(ctx.folder, name)
        if meta is None:
            left_out[name] = "it has no records; tokenize it first"
            continue
        fault = _fault(ctx, meta)
        if fault:
            incomplete[name] = fault
        sources.append(Source(ctx.folder.records(name), meta))
    faults = left_out | incomplete
    if faults and not ctx.plan.merge_partial:
        listed = "; ".join(f"{name}: {why}" for name, why in sorted(faults.items()))
        raise PermanentError(f"merge: not all data sets are ready: {listed} (or allow it with merge_partial)")
    if not sources:
        raise PermanentError(f"merge: none of {', '.join(ctx.plan.names)} has records; tokenize them first")
    _check_same_model(sources)
    return MergeRequest(sources, _digest(ctx.plan, sources, faults), left_out, incomplete)


def _fault(ctx: StepContext, meta: RecordsMeta) -> str | None:
    """What these records lack, or None."""
    if not _is_current(ctx, meta):
        return "its prompts, responses or quality policies have changed since; tokenize it again"
    dataset = ctx.plan.dataset(meta.dataset)
    if outcome_on_disk(ctx.folder, dataset, meta.journal) is None:
        return f"it has {meta.journal.completion_tokens:,} of its {dataset.budget_tokens:,} tokens; generate the rest first"
    return None


def _is_current(ctx: StepContext, meta: RecordsMeta) -> bool:
    """Whether tokenizing again would change nothing. A journal of the same size and time is taken for the same; any other is hashed."""
    journal = ctx.folder.journal(meta.dataset)
    if not journal.is_file():
        return False
    prompts = read_prompts_meta(ctx.folder, meta.dataset)
    return meta.request == request_digest(ctx.plan, prompts, meta.journal.same_or_hash(journal))


def _check_same_model(sources: list[Source]) -> None:
    first = sources[0].meta
    for source in sources[1:]:
        for name, value in first.model.items():
            if source.meta.model.get(name) != value:
                raise PermanentError(
                    f"merge: {source.name} and {first.dataset} differ in {name} ({source.meta.model.get(name)} and {value}); "
                    "rows of two models do not go into one corpus: prepare and generate one of them again"
                )


def _digest(plan: Plan, sources: list[Source], faults: dict[str, str]) -> str:
    """Of what decides the rows and the account of their origin. How the campaign is run now says nothing about finished rows."""
    parts = [
        MERGE_SCHEMA,
        SCHEMA,
        plan.model_dump(include={"campaign", "description", "seed", "quality", "corpus"}),
        [(source.meta.model_dump(), *_licence(plan, source.name)) for source in sources],
        faults,
    ]
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _licence(plan: Plan, name: str) -> tuple[str, bool]:
    spec = plan.dataset(name)
    return spec.licence, spec.licence_contested
