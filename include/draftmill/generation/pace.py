"""How many requests to have in flight: as many as the KV cache will hold, and no more.

Every running request gets one token a step, and a step takes hardly longer for more of them, so throughput grows with the number
running until the KV cache is full; beyond that, requests are retracted and their work is redone. What fills the cache is not what
requests hold now but what they will hold at the worst moment to come. That is predicted: from how far each request has come, from
the law of answer lengths as learned so far, and from what the server says is in use. Admission keeps the predicted peak, with a margin
for chance, below the capacity.

Several jobs may share a server and do not talk to each other. Each sees the others only in the server's numbers: what they hold is
taken off the capacity, and whoever has more than its share leaves a little more room free, which those below theirs then fill.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from draftmill.generation.flights import Flights
from draftmill.generation.lengths import LengthLaw, LengthModel
from draftmill.generation.load import ServerLoad

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

HARD_CEILING = 4_096
REFRESH_S = 0.05
HORIZONS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, 1.3, 1.7, 2.2)
"""When the peak is looked for: in mean answer lengths from now."""

FIRST_CAUTION = 1.0
CAUTION_RANGE = (0.0, 4.0)
"""Standard deviations of the predicted use that must fit below the capacity: a little room where the server never retracts, more where
it does. Each retraction adds CAUTION_STEP, each answer takes RETRACTIONS_PER_ANSWER steps off."""

CAUTION_STEP = 0.01
RETRACTIONS_PER_ANSWER = 1.0
PRESSURE_STEP = 0.5

DROOP = 0.06
GUARANTEED = 0.8
HOLD_S = 5.0
FIRST_WINDOW = 8


class Pace:
    """The number of requests in flight that is right at present. Times are seconds of one clock.

    ceiling: never more than this; None is `auto`. capacity: KV tokens, as far as known. sharers: jobs that may share the server.
    """

    def __init__(self, flights: Flights, lengths: LengthModel, ceiling: int | None, capacity: float | None, sharers: int = 1) -> None:
        self._flights = flights
        self._lengths = lengths
        self._ceiling = min(ceiling or HARD_CEILING, HARD_CEILING)
        self._capacity = capacity
        self.sharers = sharers
        self._load = ServerLoad()
        self._beyond_own = 0.0
        self._others = 0.0
        self._others_slow: float | None = None
        self._looked_at: float | None = None
        self._own_at_look = 0
        self._caution = FIRST_CAUTION
        self._hold_until = -math.inf
        self._window = float(FIRST_WINDOW)
        self._cap = 0
        self._cap_until = -math.inf

    @property
    def answer_seconds(self) -> float:
        """What an answer of mean length takes at the present rate."""
        return self._lengths.law().mean / max(self._flights.progress.rate, 1e-3)

    def restart(self, capacity: float | None) -> None:
        """Another server process: what was known of the load is void."""
        self._capacity = capacity
        self._load = ServerLoad()
        self._beyond_own = self._others = 0.0
        self._others_slow = self._looked_at = None
        self._hold_until = self._cap_until = -math.inf

    def cap(self, now: float, outstanding: int) -> int:
        """How many requests may be outstanding now; at least 1, so that there is always something to learn from."""
        if now >= self._cap_until:
            self._cap = max(1, min(self._ceiling, self._wanted(now, outstanding)))
            self._cap_until = now + REFRESH_S
        return self._cap

    def observe(self, now: float, load: ServerLoad, outstanding: int) -> None:
        """A look at the server, while `outstanding` requests of ours were on their way."""
        before, self._load = self._load, load
        self._capacity = load.capacity_tokens or self._capacity
        self._note_others(now, load, outstanding)
        if load.used_tokens is not None:
            self._beyond_own = load.used_tokens - self._held(now)
        if load.retracted is not None and before.retracted is not None and load.retracted > before.retracted:
            self._be_careful(CAUTION_STEP * (load.retracted - before.retracted))
        self._cap_until = -math.inf

    def finished(self) -> None:
        """An answer came back."""
        self._window += 1
        own = len(self._flights)
        share = own / (own + self._others) if own else 1.0
        self._be_careful(-CAUTION_STEP * RETRACTIONS_PER_ANSWER / max(share, 0.1))

    def pressure(self, now: float) -> None:
        """The server refused a request, or aborted it for lack of memory."""
        if now >= self._hold_until:  # a burst of refusals is one event
            self._window = max(1.0, min(self._window, len(self._flights)) / 2)
            self._be_careful(PRESSURE_STEP)
        self._hold_until = now + HOLD_S
        self._cap_until = -math.inf

    def _note_others(self, now: float, load: ServerLoad, outstanding: int) -> None:
        if load.running is None:
            return
        self._others = max(0.0, load.running + (load.waiting or 0.0) - outstanding)
        if self._others_slow is None or self._looked_at is None:
            self._others_slow = 0.0
        else:
            self._others_slow += (self._others - self._others_slow) * -math.expm1((self._looked_at - now) / self.answer_seconds)
        self._looked_at = now

    def _be_careful(self, more: float) -> None:
        """Leave more room free, or less."""
        low, high = CAUTION_RANGE
        self._caution = min(high, max(low, self._caution + min(more, PRESSURE_STEP)))

    def _held(self, now: float) -> float:
        """KV tokens that our own requests hold by our own reckoning."""
        return float((self._flights.ages(now) + self._flights.prompt_tokens()).sum())

    def _wanted(self, now: float, outstanding: int) -> int:
        if now < self._hold_until:
            return outstanding
        queued = self._load.waiting is not None and self._load.waiting > self._queue_allowed()
        if self._capacity is None or self._load.used_tokens is None:
            return outstanding if queued else int(self._window)
        return outstanding + self._fitting(now, self._capacity, queued)

    def _queue_allowed(self) -> float:
        return max(1.0, 0.02 * (self._load.running or 0.0))

    def _fitting(self, now: float, capacity: float, queued: bool) -> int:
        """How many fresh requests fit: the largest k for which the predicted use stays below the capacity at every horizon.

        A job that shares the server may also use its guaranteed part of it, whatever the others hold: what it admits grows slowly,
        and those who hold more than their part admit nothing until there is room again.
        """
        import numpy as np

        ages, prompts = self._flights.ages(now), self._flights.prompt_tokens()
        law = self._lengths.law(ages)
        ahead = np.array(HORIZONS) * law.mean
        own, variance = _use(law, ages, prompts, ahead)
        prompt = float(prompts.mean()) if len(prompts) else 0.25 * law.mean
        fresh, spread = _use(law, np.zeros(1), np.array([prompt]), ahead)
        others = self._beyond_own + self._young_others() * float(fresh.max())
        rooms = [] if queued else [self._usable(capacity, len(prompts)) - others - own]
        if self._others >= 1:
            rooms.append(GUARANTEED * capacity / max(2, self.sharers) - own)
        fitting = [float(_solve(fresh, spread, variance, room, self._caution).min()) for room in rooms]
        return int(max([0.0, *fitting]))

    def _young_others(self) -> float:
        return max(0.0, self._others - 2.0 * (self._others_slow or 0.0))

    def _usable(self, capacity: float, own: int) -> float:
        if self._others < 1 or own == 0:
            return capacity
        surplus = own / (own + self._others) - 1.0 / max(2, self.sharers)
        return capacity * (1.0 - DROOP * max(0.0, surplus))


def _use(law: LengthLaw, ages: Floats, prompts: Floats, ahead: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of the KV use of these requests, `ahead` tokens from now, if no other is admitted. Shape [len(ahead)].

    A request of age a is still running s tokens later with probability P = S(a + s) / S(a), and holds p + a + s tokens then.
    """
    import numpy as np

    later = ages[None, :] + ahead[:, None]
    alive = law.alive(later) / np.maximum(law.alive(ages), 1e-9)[None, :]
    held = later + prompts[None, :]
    return (alive * held).sum(axis=1), (alive * (1 - alive) * held * held).sum(axis=1)


def _solve(fresh: Floats, spread: Floats, variance: Floats, room: Floats, caution: float) -> Floats:
    """The largest k >= 0 with k fresh + caution sqrt(variance + k spread) <= room, at each horizon; 0 where there is none.

    With u = sqrt(variance + k spread): (fresh / spread) (u^2 - variance) + caution u - room = 0, a quadratic equation in u.
    """
    import numpy as np

    spread = np.maximum(spread, 1e-6)
    slope = np.maximum(fresh, 1e-6) / spread
    inside = caution * caution + 4 * slope * (room + slope * variance)
    root = (-caution + np.sqrt(np.maximum(inside, 0.0))) / (2 * slope)
    return np.where(inside > 0, np.maximum((root * root - variance) / spread, 0.0), 0.0)
