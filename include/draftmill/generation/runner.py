"""Generation of one data set: from server process to server process until the budget is reached or the prompts are exhausted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from draftmill.errors import PermanentError
from draftmill.generation.book import Book
from draftmill.generation.client import Client
from draftmill.generation.dispatch import Dispatcher, Queue
from draftmill.generation.flights import Flights
from draftmill.generation.journal import NoSpace
from draftmill.generation.pace import Pace
from draftmill.generation.supply import Supply
from draftmill.generation.watch import ServerLost
from draftmill.generation.work import Form, Limits
from draftmill.jobs.step import StepContext
from draftmill.serving.endpoint import Endpoint, ServerSource
from draftmill.spec.results import Outcome

if TYPE_CHECKING:
    import aiohttp

TELL_S = 5.0
MOST_DRAIN_S = 60.0
NO_SPACE_PATIENCE_S = 10.0
_STOP_LOOK_S = 0.25

Value = TypeVar("Value")


@dataclass
class Parts:
    """What a run works with; made by the step."""

    ctx: StepContext
    source: ServerSource
    book: Book
    supply: Supply
    flights: Flights
    pace: Pace
    form: Form
    vocab_size: int | None
    connector: Callable[[], aiohttp.BaseConnector] | None = None
    """Makes the connector of each server's session; None: TCP."""

    covered: Callable[[], None] = lambda: None
    """Called when the budget begins to hold sending back, so that another data set may start; perhaps more than once."""


class Runner:
    """Drives the parts. Belongs to the running loop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._ctx = parts.ctx
        self._book = parts.book
        self._loop = asyncio.get_running_loop()
        self._again = Queue()
        self._began = self._loop.time()
        self._told_at = self._began
        self._told_tokens = 0
        self._rate: float | None = None
        self._stopped_at: float | None = None
        self._full_since: float | None = None
        self.version: str | None = None

    async def run(self) -> Outcome:
        """Generate. StoppedError where a stop was asked for; other errors say why it ended and whether a retry helps.

        Whatever happens, every response that came back is in the journal, or named as not written for lack of space.
        """
        newer_than = -1
        while True:
            endpoint = await self._unless_stopped(self._parts.source.endpoint(newer_than=newer_than))
            newer_than, self.version = endpoint.incarnation, endpoint.version
            try:
                await self._serve(endpoint)
                return self._outcome()
            except ServerLost as lost:
                self._tell(f"{lost}; waiting for the server to come back", 0)
                if lost.wedged:
                    await self._parts.source.report_wedged(endpoint.incarnation, str(lost))

    async def _serve(self, endpoint: Endpoint) -> None:
        parts = self._parts
        limits = Limits.of(endpoint, self._ctx.dataset.max_new_tokens, parts.vocab_size)
        if limits is None:
            raise PermanentError(
                f"{self._ctx.dataset.name}: neither the prompts nor the server say how large the vocabulary is, and an id outside it "
                "kills the server; prepare the data set again"
            )
        parts.pace.restart(endpoint.kv_capacity_tokens)
        async with Client(endpoint, parts.connector() if parts.connector else None) as client:
            dispatcher = Dispatcher(
                client,
                self._book,
                parts.supply,
                parts.pace,
                parts.flights,
                parts.form,
                limits,
                self._again,
                self._ctx.plan.server.profile.silent_s,
            )
            await self._following(endpoint, dispatcher)

    async def _following(self, endpoint: Endpoint, dispatcher: Dispatcher) -> None:
        """Run the dispatcher; where its server is suspected to be gone, look out for a newer one beside it."""
        running = asyncio.ensure_future(dispatcher.run(self._each_tick))
        newer: asyncio.Future[Endpoint] | None = None
        try:
            while not running.done():
                if dispatcher.watch.suspected and newer is None:
                    newer = asyncio.ensure_future(self._parts.source.endpoint(newer_than=endpoint.incarnation))
                elif newer is not None and not dispatcher.watch.suspected:
                    newer.cancel()
                    newer = None
                both: list[asyncio.Future[Any]] = [running] if newer is None else [running, newer]
                await asyncio.wait(both, timeout=_STOP_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                if newer is not None and newer.done():
                    newer.result()
                    dispatcher.watch.lost = ServerLost("the server was restarted", wedged=False)
                    break
            await running
        finally:
            for task in (newer, running):
                if task is not None and not task.done():
                    task.cancel()
            await asyncio.gather(*[task for task in (newer, running) if task is not None], return_exceptions=True)

    async def _unless_stopped(self, waiting: Coroutine[Any, Any, Value]) -> Value:
        """Await, unless a stop is asked for meanwhile."""
        task = asyncio.ensure_future(waiting)
        try:
            while not task.done():
                self._ctx.check_stop()
                await asyncio.wait([task], timeout=_STOP_LOOK_S)
            return task.result()
        finally:
            task.cancel()

    def _outcome(self) -> Outcome:
        self._ctx.check_stop()
        reached = self._book.ledger.reached()
        if reached is not None:
            return reached
        verdict = self._book.verdict(final=True)
        if verdict is not None:
            raise verdict
        return "exhausted"

    def _each_tick(self, dispatcher: Dispatcher) -> None:
        now = self._loop.time()
        if dispatcher.covered:
            self._parts.covered()
        self._look_at_stop(now, dispatcher)
        self._look_at_disk(now, dispatcher)
        if now - self._told_at >= TELL_S:
            self._progress(now, dispatcher)

    def _look_at_stop(self, now: float, dispatcher: Dispatcher) -> None:
        if not self._ctx.stop.is_set():
            return
        patience = min(self._ctx.plan.server.profile.drain_s, MOST_DRAIN_S)
        if self._stopped_at is None:
            self._stopped_at = now
            dispatcher.admitting = False
            self._tell(
                f"stopping: {dispatcher.outstanding} requests are out, waiting at most {patience:.0f} s for them", dispatcher.outstanding
            )
        if now - self._stopped_at >= patience:
            self._ctx.check_stop()

    def _look_at_disk(self, now: float, dispatcher: Dispatcher) -> None:
        if not self._book.unwritten:
            self._full_since = None
            return
        try:
            self._book.write_held()
        except NoSpace as error:
            if self._full_since is None:
                self._full_since = now
                self._tell(f"{error}; nothing more is sent until there is", dispatcher.outstanding)
            if dispatcher.outstanding == 0 and now - self._full_since >= NO_SPACE_PATIENCE_S:
                raise NoSpace(f"{error} ({len(self._book.unwritten)} responses were not written and will be generated again)") from None

    def _progress(self, now: float, dispatcher: Dispatcher) -> None:
        tokens = self._book.new_tokens
        recent = (tokens - self._told_tokens) / max(now - self._told_at, 1e-6)
        self._rate = recent if self._rate is None else 0.8 * self._rate + 0.2 * recent
        self._told_tokens = tokens
        spent, budget = self._book.ledger.spent, self._book.ledger.budget
        self._tell(f"{spent:,} of {budget:,} tokens ({100 * spent / budget:.1f} %), {self._rate:,.0f} tokens/s", dispatcher.outstanding)

    def _tell(self, message: str, in_flight: int) -> None:
        ledger, rate = self._book.ledger, self._rate
        self._told_at = self._loop.time()
        self._ctx.progress(
            f"{self._ctx.dataset.name}: {message}",
            done=ledger.responses,
            in_flight=in_flight,
            tokens=ledger.spent,
            budget_tokens=ledger.budget,
            tokens_per_s=None if rate is None else round(rate, 1),
            eta_s=round(max(0, ledger.budget - ledger.spent) / rate) if rate else None,
            errors=self._book.failures.total(),
        )

    @property
    def seconds(self) -> float:
        """Seconds since the runner was made."""
        return self._loop.time() - self._began
