"""Sending work to one server process until everything is done or the server is lost."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from draftmill.generation.book import Book
from draftmill.generation.client import Client
from draftmill.generation.faults import RULES, RequestFault, pause
from draftmill.generation.flights import Flights
from draftmill.generation.pace import Pace
from draftmill.generation.supply import Supply
from draftmill.generation.verify import Answer, verify
from draftmill.generation.watch import Watch
from draftmill.generation.work import LEAST_NEW_TOKENS, TOO_LONG, Form, Limits, Work

TICK_S = 0.5
LATE_FACTOR = 2.0
LATE_SLACK = 512
LATE_LEAST_S = 60.0
"""A request is late when the others could have generated LATE_FACTOR x max_new_tokens + LATE_SLACK tokens since it was sent, and not
before LATE_LEAST_S seconds: measured in tokens, so that a slow server is not mistaken for a lost request."""

_SHRINK_BY = 64

Recall = Literal["lost", "stop", "late"]


@dataclass(slots=True)
class Sent:
    """A request that is out. recall: why it was called back, if it was."""

    work: Work
    at: float
    unix: float
    task: asyncio.Task[None] | None = None
    recall: Recall | None = None


@dataclass
class Queue:
    """Work that was admitted and waits for its next attempt."""

    _heap: list[tuple[float, int, Work]] = field(default_factory=list)
    _order: count[int] = field(default_factory=count)

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, work: Work, not_before: float) -> None:
        """Queue `work` for the time `not_before`."""
        heapq.heappush(self._heap, (not_before, next(self._order), work))

    def due(self, now: float) -> Work | None:
        """Work whose time has come, or None."""
        return heapq.heappop(self._heap)[2] if self._heap and self._heap[0][0] <= now else None

    def clear(self) -> None:
        """Forget all."""
        self._heap.clear()


class Dispatcher:
    """One server process. `again` outlives it, so that what was out when it was lost is sent to the next one.

    admitting: False stops sending, new prompts and new attempts alike.
    covered: the budget, or the end of the prompts, holds sending back, and no longer the server: somebody else may fill it.
    """

    def __init__(
        self,
        client: Client,
        book: Book,
        supply: Supply,
        pace: Pace,
        flights: Flights,
        form: Form,
        limits: Limits,
        again: Queue,
        silent_s: float,
    ) -> None:
        self._client = client
        self._book = book
        self._supply = supply
        self._pace = pace
        self._flights = flights
        self._form = form
        self._limits = limits
        self._again = again
        self._out: dict[str, Sent] = {}
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._problem: BaseException | None = None
        self.admitting = True
        self.covered = False
        self.watch = Watch(client, pace, flights.progress, silent_s, lambda: len(self._out))

    @property
    def outstanding(self) -> int:
        """Requests that are out now."""
        return len(self._out)

    async def run(self, each_tick: Callable[[Dispatcher], None]) -> None:
        """Send until nothing is left to send or to wait for.

        `each_tick` is called every TICK_S seconds, may change `admitting`, and ends the run by raising. Raises ServerLost, and what
        makes all requests fail. Whatever happens, no request of ours is out when this returns; after ServerLost all are queued again.
        """
        watching = asyncio.create_task(self.watch.run())
        ticking = asyncio.create_task(self._tick(each_tick))
        for task in (watching, ticking):
            task.add_done_callback(lambda _: self._wake.set())
        try:
            await self.watch.identify()
            while True:
                self._check(watching, ticking)
                self._send_what_fits()
                if self._is_over():
                    return
                await self._wake.wait()
                self._wake.clear()
        finally:
            for task in (watching, ticking):
                task.cancel()
            await asyncio.gather(watching, ticking, return_exceptions=True)
            await self.call_back("lost" if self.watch.lost else "stop")

    def _check(self, *tasks: asyncio.Task[None]) -> None:
        if self._problem is not None:
            raise self._problem
        if self.watch.lost is not None:
            raise self.watch.lost
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise task.exception() or RuntimeError
        verdict = self._book.verdict(final=False)
        if verdict is not None:
            raise verdict

    def _is_over(self) -> bool:
        if self._out or self._book.unwritten:
            return False
        if not self.admitting:
            return True
        if self._again:
            return False
        return self._supply.exhausted or self._book.ledger.reached() is not None

    async def _tick(self, each_tick: Callable[[Dispatcher], None]) -> None:
        while True:
            self._recall_late()
            each_tick(self)
            self._wake.set()
            await asyncio.sleep(TICK_S)

    def _send_what_fits(self) -> None:
        if not self.admitting or self.watch.suspected or self._book.unwritten:
            return
        now = self._loop.time()
        room = self._pace.cap(now, len(self._out)) - len(self._out)
        sent = self._send_again(now, room)
        sent += self._send_fresh(now, room - sent)
        if sent:
            self._pace.publish(now)

    def _send_again(self, now: float, room: int) -> int:
        sent = 0
        while sent < room and (work := self._again.due(now)) is not None:
            self._send(work, now)
            sent += 1
        return sent

    def _send_fresh(self, now: float, room: int) -> int:
        allowed = self._book.ledger.room(now, room) if room > 0 else 0
        if self._supply.exhausted or (allowed < room and self._book.ledger.winding_down):
            self.covered = True
        if room > 0:
            self._pace.wants = allowed == room and not self._supply.exhausted
        for sent in range(allowed):
            fresh = self._supply.take(self._limits)
            if fresh is None:
                if not self._supply.exhausted:
                    self._wake.set()
                return sent
            self._send(fresh, now)
        return allowed

    def _send(self, work: Work, now: float) -> None:
        work.attempts += 1
        self._flights.start(work.id, work.prompt_tokens, now)
        sent = Sent(work, now, time.time())
        self._out[work.id] = sent
        sent.task = self._loop.create_task(self._request(sent))

    async def _request(self, sent: Sent) -> None:
        work = sent.work
        try:
            body = await self._client.generate(self._form.body(work))
            answer = verify(body, self._form.expected(work))
        except RequestFault as fault:
            if RULES[fault.kind].lost:
                await self._client.abort(self._form.rid(work))
            self._failed(work, fault)
        except asyncio.CancelledError:
            await self._recalled(sent)
        except BaseException as problem:  # noqa: BLE001 - carried to the main loop, which raises it
            self._problem = problem
        else:
            self._answered(sent, answer)
        finally:
            self._out.pop(work.id, None)
            self._wake.set()

    def _answered(self, sent: Sent, answer: Answer) -> None:
        work, now = sent.work, self._loop.time()
        tokens = len(answer.output_ids)
        self._flights.progress.finished(now, tokens, sent.at)
        self._flights.end(work.id)
        self._pace.finished()
        self.watch.moved()
        self._book.surplus += bool(answer.surplus)
        self._book.keep(self._form.row(work, answer, self._client.endpoint.fingerprint, sent.unix, time.time()))
        if work.prompt is not None:
            self._supply.answered(work.prompt, answer.output_ids)

    def _failed(self, work: Work, fault: RequestFault) -> None:
        rule, now = RULES[fault.kind], self._loop.time()
        work.failures[fault.kind] += 1
        self._book.failures[fault.kind] += 1
        if rule.pressure:
            self._pace.pressure(now)
        if rule.lost:
            self.watch.suspect()
        if fault.kind == TOO_LONG:
            work.max_new_tokens -= _SHRINK_BY * 2 ** work.failures[TOO_LONG]
        if fault.kind == TOO_LONG and work.max_new_tokens < LEAST_NEW_TOKENS:
            self._supply.skipped[TOO_LONG] += 1
            self._flights.end(work.id)
        elif work.failures[fault.kind] >= rule.tries:
            self._book.give_up(work, fault.kind, str(fault))
            self._flights.end(work.id)
        else:
            self._again.put(work, now + pause(fault.kind, work.failures[fault.kind]))

    def _recall_late(self) -> None:
        import numpy as np

        now, out = self._loop.time(), list(self._out.values())
        ages = self._flights.progress.least_ages(now, np.array([sent.at for sent in out]))
        for sent, age in zip(out, ages.tolist(), strict=True):
            if age > LATE_FACTOR * sent.work.max_new_tokens + LATE_SLACK and now - sent.at > LATE_LEAST_S and sent.recall is None:
                self._recall(sent, "late")

    def _recall(self, sent: Sent, why: Recall) -> None:
        sent.recall = why
        if sent.task is not None:
            sent.task.cancel()

    async def _recalled(self, sent: Sent) -> None:
        """What becomes of a request that was called back: it is aborted on the server, and sent again where the run goes on."""
        work = sent.work
        if sent.recall != "lost":
            await self._client.abort(self._form.rid(work))
        if sent.recall == "late":
            self._failed(work, RequestFault("deadline", "no answer in twice the time that its longest answer takes"))
        elif sent.recall == "lost":
            self._again.put(work, self._loop.time())

    async def call_back(self, why: Recall) -> None:
        """Call everything back that is out, and wait until it is."""
        tasks = []
        for sent in list(self._out.values()):
            self._recall(sent, why)
            tasks += [sent.task] if sent.task else []
        await asyncio.gather(*tasks, return_exceptions=True)
        for sent in self._out.values():  # a task that was cancelled before its first step never ran its own clean-up
            if why == "lost":
                self._again.put(sent.work, self._loop.time())
        self._out.clear()
