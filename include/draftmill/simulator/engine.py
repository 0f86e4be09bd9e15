"""A continuous-batching engine in virtual time: a discrete-event simulation, deterministic and without any input or output.

One decode step gives every running request one token and takes `HostProfile.step_s(running)` seconds. Between two events (an
arrival, an end, a full cache) the batch does not change, so all the steps in between are taken at once: a day of decoding costs
a few hundred thousand operations.

A request holds KV for its prompt and what it has generated. It waits, first come first served, until its prompt fits beside one
more token of everyone running. When the running requests outgrow the cache, the youngest is retracted and put first in the queue;
nobody is admitted before the next step then.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from draftmill.simulator.profile import HostProfile

Ending = Literal["finished", "aborted", "out_of_memory"]

_ROUNDING = 1e-9
"""Relative slack when seconds are turned into whole steps."""


@dataclass(slots=True, eq=False)
class Sequence:
    """A request in the engine. Lengths are in tokens, times in virtual seconds.

    prompt, answer: tokens of the prompt, and tokens it will have generated when it ends.
    kept: tokens generated before it was last put into the batch.
    admission, joined_step: its place in the order of admissions, and the step after which it joined; -1 while it waits.
    """

    rid: str
    prompt: int
    answer: int
    arrived: float = 0.0
    kept: int = 0
    admission: int = -1
    joined_step: int = -1


@dataclass
class Counters:
    """What has happened so far. Sums are over virtual seconds since the engine started."""

    finished: int = 0
    aborted: int = 0
    retracted: int = 0
    prompt_tokens: int = 0
    decoded_tokens: int = 0
    answered_tokens: int = 0
    busy_s: float = 0.0
    kv_token_s: float = 0.0
    running_s: float = 0.0
    peak_kv: int = 0


@dataclass(frozen=True)
class Ended:
    """A request that left the engine: how, when, and after how many tokens."""

    rid: str
    ending: Ending
    at: float
    tokens: int


@dataclass
class Engine:
    """The engine. Callers first `advance` to their own time, then submit or abort.

    slowdown: factor on the time of every step, a fault. frozen: time passes and nothing moves, a fault.
    """

    profile: HostProfile
    clock: float = 0.0
    slowdown: float = 1.0
    frozen: bool = False
    counters: Counters = field(default_factory=Counters)
    used: int = 0
    _step: int = 0
    _retracted_step: int = -1
    _admissions: int = 0
    _running: dict[str, Sequence] = field(default_factory=dict)
    _waiting: deque[Sequence] = field(default_factory=deque)
    _ends: list[tuple[int, int, str]] = field(default_factory=list)
    _ended: list[Ended] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """Decode steps since the engine started."""
        return self._step

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests in the queue, retracted ones included."""
        return len(self._waiting)

    @property
    def throughput(self) -> float:
        """Tokens a second that the present batch decodes at."""
        if not self._running or self.frozen:
            return 0.0
        return len(self._running) / self._step_s()

    def generated(self, rid: str) -> int:
        """Tokens that `rid` has generated so far; 0 where it waits or is unknown."""
        entry = self._running.get(rid)
        return entry.kept + self._step - entry.joined_step if entry else 0

    def submit(self, entry: Sequence) -> None:
        """Put a request at the end of the queue. It is looked at from its `arrived` on, at the next step boundary."""
        self._waiting.append(entry)

    def abort(self, rid: str) -> Ended | None:
        """Take a request out, wherever it is. None where it is unknown."""
        entry = self._running.get(rid)
        if entry is not None:
            self._release(entry)
        else:
            entry = next((candidate for candidate in self._waiting if candidate.rid == rid), None)
            if entry is None:
                return None
            self._waiting.remove(entry)
        self._retracted_step = -1  # there is room again, whoever made it
        self.counters.aborted += 1
        return Ended(rid, "aborted", self.clock, entry.kept)

    def advance(self, until: float) -> list[Ended]:
        """Run to the last step boundary that is not after `until`, and return what ended on the way, in order.

        The clock may end up later than `until` by the prefill of requests admitted on the way.
        """
        while self.clock <= until and not self.frozen:
            if not self._running and not self._waiting:
                break
            if self._admit():
                continue
            if not self._running:
                self.clock = min(self._waiting[0].arrived, until)
                if self.clock == until:
                    break
                continue
            steps = self._steps_ahead(until)
            if steps <= 0:
                break
            self._decode(steps)
            self._make_room()
        if self.frozen or not self._running:
            self.clock = max(self.clock, until)
        ended, self._ended = self._ended, []
        return ended

    def next_event(self) -> float | None:
        """Virtual time at which something may next happen without another arrival; None where nothing will."""
        if self.frozen:
            return None
        if not self._running:
            return max(self.clock, self._waiting[0].arrived) if self._waiting else None
        return self.clock + max(1, self._quiet_steps()) * self._step_s()

    def _step_s(self) -> float:
        return self.profile.step_s(len(self._running)) * self.slowdown

    def _quiet_steps(self) -> int:
        """Steps until a request ends, the cache is full, or a request that arrived during a step can be looked at."""
        running = len(self._running)
        steps = min((self.profile.kv_tokens - self.used) // running, self._next_end() - self._step)
        if self._waiting and self._waiting[0].arrived > self.clock:
            steps = min(steps, math.ceil((self._waiting[0].arrived - self.clock) / self._step_s() * (1 - _ROUNDING)))
        return 1 if self._waiting and self._retracted_step == self._step else steps

    def _steps_ahead(self, until: float) -> int:
        in_time = int((until - self.clock) / self._step_s() * (1 + _ROUNDING) + _ROUNDING)
        return min(self._quiet_steps(), in_time)

    def _next_end(self) -> int:
        while self._ends:
            step, admission, rid = self._ends[0]
            entry = self._running.get(rid)
            if entry is not None and entry.admission == admission:
                return step
            heapq.heappop(self._ends)
        raise AssertionError("a running request has no end")

    def _decode(self, steps: int) -> None:
        running = len(self._running)
        seconds = steps * self._step_s()
        self.counters.decoded_tokens += steps * running
        self.counters.running_s += seconds * running
        self._pass(seconds, self.used + running * (steps + 1) / 2)
        self.used += steps * running
        self.counters.peak_kv = max(self.counters.peak_kv, self.used)
        self._step += steps
        while self._running and self._next_end() == self._step:
            entry = self._running[heapq.heappop(self._ends)[2]]
            self._release(entry)
            self.counters.finished += 1
            self.counters.answered_tokens += entry.answer
            self._ended.append(Ended(entry.rid, "finished", self.clock, entry.answer))

    def _pass(self, seconds: float, mean_kv: float) -> None:
        self.clock += seconds
        self.counters.busy_s += seconds
        self.counters.kv_token_s += seconds * mean_kv

    def _release(self, entry: Sequence) -> None:
        """Take `entry` out of the batch and give its KV back; `kept` becomes all that it has generated."""
        del self._running[entry.rid]
        entry.kept += self._step - entry.joined_step
        self.used -= entry.prompt + entry.kept

    def _admit(self) -> bool:
        """Move requests from the queue into the batch while they fit, and prefill them. Whether anything changed."""
        tokens = 0
        while self._waiting and self._fits(self._waiting[0]):
            entry = self._waiting.popleft()
            self._admissions += 1
            entry.admission, entry.joined_step = self._admissions, self._step
            self._running[entry.rid] = entry
            heapq.heappush(self._ends, (self._step + entry.answer - entry.kept, entry.admission, entry.rid))
            self.used += entry.prompt + entry.kept
            tokens += entry.prompt + entry.kept
        if tokens:
            self.counters.prompt_tokens += tokens
            self._pass(tokens / self.profile.prefill_tokens_per_s * self.slowdown, self.used)
        elif self._waiting and not self._running and self._waiting[0].arrived <= self.clock:
            self._give_up(self._waiting.popleft())
            return True
        return tokens > 0

    def _fits(self, entry: Sequence) -> bool:
        if entry.arrived > self.clock or self._retracted_step == self._step or len(self._running) >= self.profile.max_running:
            return False
        return self.used + entry.prompt + entry.kept + len(self._running) + 1 <= self.profile.kv_tokens

    def _make_room(self) -> None:
        """Retract the youngest until everyone running can have one more token."""
        while self.used + len(self._running) > self.profile.kv_tokens:
            entry = next(reversed(self._running.values()))
            self._release(entry)
            if not self._running:
                self._give_up(entry)
                return
            self.counters.retracted += 1
            self._retracted_step = self._step
            if self.profile.restart_retracted:
                entry.kept = 0
            entry.admission = entry.joined_step = -1
            self._waiting.appendleft(entry)

    def _give_up(self, entry: Sequence) -> None:
        """End a request that does not fit the cache even alone."""
        self.counters.aborted += 1
        self._ended.append(Ended(entry.rid, "out_of_memory", self.clock, entry.kept))
