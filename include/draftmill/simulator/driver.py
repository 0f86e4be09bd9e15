"""Runs the engine beside an asyncio program: virtual time follows the loop's clock, `speedup` times as fast.

On a loop whose own clock is virtual (draftmill.simulator.virtual) the speed-up is 1 and a day costs what its events cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from draftmill.simulator.engine import Counters, Ended, Engine, Sequence
from draftmill.simulator.faults import Changes, Fault, Schedule
from draftmill.simulator.profile import HostProfile

NOTICE_S = 2.0
"""Virtual seconds until the server notices that a client has gone."""


class Gone(Exception):  # noqa: N818 - an event, not a mistake
    """The engine died with the request in it."""


class Driver:
    """One engine, its requests in flight, and the faults that change how it runs.

    Every method belongs to the loop that `start` was called on. `on_fault(fault, begins)` is called for state faults that are not
    the engine's own business, when they begin and when they are over.
    """

    def __init__(self, profile: HostProfile, schedule: Schedule, speedup: float, on_fault: Callable[[Fault, bool], None]) -> None:
        self.profile = profile
        self.schedule = schedule
        self.speedup = speedup
        self.engine = Engine(profile)
        self.before = Counters()
        self._on_fault = on_fault
        self.idle = asyncio.Event()
        self.idle.set()
        self._futures: dict[str, asyncio.Future[Ended]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._slowdowns: list[Fault] = []
        self._freezes: list[Fault] = []

    def start(self) -> None:
        """Bind to the running loop; virtual time 0 is now."""
        self._loop = asyncio.get_running_loop()
        self._origin = self._loop.time()
        self._tick()

    def now(self) -> float:
        """Virtual seconds since the start."""
        return (self._loop.time() - self._origin) * self.speedup

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""
        return len(self._futures)

    def knows(self, rid: str) -> bool:
        """Whether a request with this id is in flight."""
        return rid in self._futures

    async def run(self, entry: Sequence) -> Ended:
        """Put a request into the engine and wait for its end. Gone where the engine dies first."""
        self._tick()
        entry.arrived = self.now()
        future: asyncio.Future[Ended] = self._loop.create_future()
        self._futures[entry.rid] = future
        self.idle.clear()
        self.engine.submit(entry)
        self._tick()
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._loop.call_later(NOTICE_S / self.speedup, self._abandon, entry.rid, future)
            raise

    def abort(self, rid: str) -> None:
        """Abort one request; harmless where it is not in flight."""
        self._tick()
        ended = self.engine.abort(rid)
        if ended is not None:
            self._deliver([ended])
            self._tick()

    def _abandon(self, rid: str, future: asyncio.Future[Ended]) -> None:
        if self._futures.get(rid) is future:  # the id may be in use again by now
            self.abort(rid)

    def abort_all(self) -> None:
        """Abort every request in flight."""
        for rid in list(self._futures):
            self.abort(rid)

    def kill(self) -> None:
        """The engine dies: its requests end with Gone, and a fresh one begins at the present time."""
        self._tick()
        self.before = self.totals()
        self.engine = Engine(self.profile, clock=self.now())
        for future in self._futures.values():
            future.set_exception(Gone())
            future.exception()  # nobody may be waiting any more
        self._futures.clear()
        self.idle.set()
        self._slowdowns, self._freezes = [], []

    def totals(self) -> Counters:
        """Counters over all engines since the start."""
        present = vars(self.engine.counters)
        summed = {name: value + present[name] for name, value in vars(self.before).items()}
        return replace(Counters(**summed), peak_kv=max(self.before.peak_kv, self.engine.counters.peak_kv))

    def look(self) -> None:
        """Bring the engine up to the present, faults included."""
        self._tick()

    def clear_faults(self) -> None:
        """Forget all faults and undo those at work."""
        self._apply(Changes(over=self.schedule.clear()))
        self._tick()

    def stop(self) -> None:
        """Let go of the loop."""
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        now = self.now()
        self._deliver(self.engine.advance(now))
        changes = self.schedule.changes(now)
        if changes.begun or changes.over:
            self._apply(changes)
            self._deliver(self.engine.advance(now))
        self.stop()
        times = [time for time in (self.engine.next_event(), self.schedule.next_change(now)) if time is not None]
        if times:
            self._timer = self._loop.call_at(self._origin + min(times) / self.speedup, self._tick)

    def _deliver(self, ended: list[Ended]) -> None:
        for entry in ended:
            future = self._futures.pop(entry.rid, None)
            if future is not None and not future.done():
                future.set_result(entry)
        if not self._futures:
            self.idle.set()

    def _apply(self, changes: Changes) -> None:
        for fault, begins in [(fault, True) for fault in changes.begun] + [(fault, False) for fault in changes.over]:
            group = self._group(fault)
            if group is None:
                self._on_fault(fault, begins)
            elif begins:
                group.append(fault)
            elif fault in group:
                group.remove(fault)
        self.engine.frozen = bool(self._freezes)
        self.engine.slowdown = max((fault.number for fault in self._slowdowns), default=1.0)

    def _group(self, fault: Fault) -> list[Fault] | None:
        if fault.kind in ("slow", "rate_collapse"):
            return self._slowdowns
        if fault.kind in ("silent", "scheduler_dead"):
            return self._freezes
        return None

    def has_frozen(self, kind: str) -> bool:
        """Whether a fault of this kind holds the engine still."""
        return any(fault.kind == kind for fault in self._freezes)
