"""The step `generate`: answers for one data set's prompts, until its token budget is reached."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from draftmill.files import read_json
from draftmill.generation.board import Board
from draftmill.generation.book import Book, failed_file, read_failed
from draftmill.generation.flights import Flights, Progress
from draftmill.generation.journal import Journal
from draftmill.generation.ledger import Ledger
from draftmill.generation.lengths import LengthModel
from draftmill.generation.pace import Pace
from draftmill.generation.runner import Parts, Runner
from draftmill.generation.slots import Slots
from draftmill.generation.summary import outcome_on_disk, write_summary
from draftmill.generation.supply import Follow, Supply
from draftmill.generation.work import Form
from draftmill.jobs.step import StepContext
from draftmill.prompts.prompt import content_id
from draftmill.serving.endpoint import ServerSource
from draftmill.spec.results import GenerateResult, Outcome


def run(ctx: StepContext) -> dict[str, Any]:
    """Generate until the budget of `ctx.dataset` is reached or its prompts are exhausted. Returns a GenerateResult as a dict.

    A budget that is met already needs no server: no lease is taken, no request sent.
    Raises StoppedError on request, TemporaryError where a retry continues (another writer, a full disk, a lost server, too many
    failures), PermanentError where a person must act (no prompts, a wrong key, a server that refuses every request).
    """
    with open_journal(ctx) as journal:
        outcome = outcome_on_disk(ctx.folder, ctx.dataset, journal.index)
        if outcome is not None:
            ctx.progress(f"{ctx.dataset.name}: nothing to do: {outcome.replace('_', ' ')}", done=journal.index.responses)
            return _result(ctx, journal, outcome, None, None).model_dump()
        return _with_server(ctx, journal).model_dump()


def open_journal(ctx: StepContext) -> Journal:
    """The data set's journal, locked, repaired and indexed."""
    name = ctx.dataset.name
    journal = Journal(ctx.folder.journal(name), ctx.folder.journal_lock(name), f"generate {ctx.plan.campaign}/{name}")
    if journal.repaired.side_file is not None:
        ctx.progress(f"{name}: journal repaired: {journal.repaired}")
    return journal


def _with_server(ctx: StepContext, journal: Journal) -> GenerateResult:
    from draftmill.serving.lease import hold

    name = ctx.dataset.name
    slots = Slots(ctx.folder.root / "slots", name, ctx.dataset.expected_tokens, ctx.plan.datasets_at_once)
    with ExitStack() as stack:
        slots.acquire(ctx.stop, lambda text: ctx.progress(f"{name}: {text}"))
        stack.callback(slots.release)
        source = stack.enter_context(
            hold(ctx.workspace, ctx.plan.server, f"{ctx.plan.campaign}/{name}", ctx.stop, lambda text: ctx.progress(f"{name}: {text}"))
        )
        return asyncio.run(generate(ctx, journal, source, covered=slots.release))


async def generate(
    ctx: StepContext, journal: Journal, source: ServerSource, connector: Any = None, covered: Callable[[], None] = lambda: None
) -> GenerateResult:
    """Generate with the servers of `source`, on the running loop. `connector` makes aiohttp connectors for servers not reached by TCP.

    `covered` is called, perhaps more than once, when the budget begins to hold sending back: time for another data set to start.
    Times are those of the loop's clock, so the program may run in virtual time.
    """
    dataset, index, name = ctx.dataset, journal.index, ctx.dataset.name
    meta = _prompts_meta(ctx)
    flights = Flights(Progress())
    lengths = LengthModel(dataset.expected_tokens, dataset.max_new_tokens, index.lengths)
    ledger = Ledger(dataset.budget_tokens, lengths, flights, index.completion_tokens, index.responses, dataset.max_samples)
    ceiling = None if dataset.in_flight == "auto" else dataset.in_flight
    pace = Pace(flights, lengths, ceiling, None, Board(ctx.workspace.server / "forecasts", f"{ctx.plan.campaign}.{name}"))
    failed = failed_file(ctx.folder.journal(name))
    book = Book(journal, ledger, failed)
    supply = Supply(ctx.folder.prompts(name), journal, _follow(ctx))
    supply.refused = frozenset(entry["id"] for entry in read_failed(failed) if entry.get("settled"))
    sampling = ctx.plan.sampling.model_dump(exclude_none=True)
    vocab_size: int | None = meta.get("vocab_size")
    form = Form(sampling, _rid_prefix(ctx), frozenset(meta.get("eos_token_ids") or ()), vocab_size)
    runner = Runner(Parts(ctx, source, book, supply, flights, pace, form, vocab_size, connector, covered))
    settled = False
    try:
        await _confirm_tokenizer(ctx, source, meta.get("probe"))
        outcome = await runner.run()
        settled = True
    finally:
        pace.leave()
        supply.close()
        journal.sync()
        book.write_failed(settled)
    result = _result(ctx, journal, outcome, runner, book, supply)
    write_summary(ctx.folder, dataset, result.model_dump())
    return result


def _prompts_meta(ctx: StepContext) -> dict[str, Any]:
    meta = read_json(ctx.folder.prompts_meta(ctx.dataset.name))
    return meta if isinstance(meta, dict) else {}


async def _confirm_tokenizer(ctx: StepContext, source: ServerSource, probe: Any) -> None:
    """PermanentError where the server makes other ids of a text than the tokenizer that the prompts were made with."""
    if not probe:
        return
    from draftmill.prompts.probe import check_server

    endpoint = await source.endpoint()
    agreed = await asyncio.to_thread(check_server, endpoint.base_url, endpoint.api_key, probe)
    if not agreed:
        ctx.progress(f"{ctx.dataset.name}: the server does not say how it tokenizes; going on with our own tokenizer")


def _follow(ctx: StepContext) -> Follow | None:
    if ctx.dataset.turns != "all":
        return None
    from draftmill.prompts.turns import TurnRenderer, next_prompt

    renderer = TurnRenderer.of(ctx)
    return lambda prompt, output_ids: next_prompt(renderer, prompt, output_ids)


def _rid_prefix(ctx: StepContext) -> str:
    """Begins the request ids of this process: another process of the same data set, alive or dead, has others."""
    return f"draftmill-{content_id(f'{ctx.plan.campaign}/{ctx.dataset.name}/{os.getpid()}/{time.time_ns()}'.encode())[:12]}"


def _result(
    ctx: StepContext, journal: Journal, outcome: Outcome, runner: Runner | None, book: Book | None, supply: Supply | None = None
) -> GenerateResult:
    index = journal.index
    tokens, responses = (book.new_tokens, book.new_responses) if book else (0, 0)
    seconds = runner.seconds if runner else 0.0
    return GenerateResult(
        dataset=ctx.dataset.name,
        budget_tokens=ctx.dataset.budget_tokens,
        completion_tokens=index.completion_tokens + tokens,
        prompt_tokens=index.prompt_tokens + (book.prompt_tokens if book else 0),
        responses=index.responses + responses,
        finish_reasons=dict(index.finish_reasons + (book.finish_reasons if book else type(index.finish_reasons)())),
        outcome=outcome,
        resumed_tokens=index.completion_tokens,
        new_tokens=tokens,
        new_responses=responses,
        skipped=dict(supply.skipped) if supply else {},
        failures=dict(book.failures) if book else {},
        seconds=seconds,
        tokens_per_s=tokens / seconds if seconds > 0 else 0.0,
        server_version=runner.version if runner else None,
        path=str(journal.path),
    )
