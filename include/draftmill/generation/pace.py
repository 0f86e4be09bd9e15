"""How many requests to have in flight: as many as the KV cache will hold, and no more.

Every running request gets one token a step, and a step takes hardly longer for more of them, so throughput grows with the number
running until the KV cache is full; beyond that, requests are retracted and their work is redone. What fills the cache is not what
requests hold now but what they will hold at the worst moment to come. That is predicted: from how far each request has come, from
the law of answer lengths as learned so far, and from what the server says is in use. Admission keeps the predicted peak, with a margin
for chance, below the capacity.

Several jobs may share a server. Each publishes its forecast (draftmill.generation.board) and admits what fits beside those of the
others; who has its part of the cache admits nothing while somebody below it wants more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from draftmill.generation.board import Board
from draftmill.generation.flights import Flights
from draftmill.generation.forecast import HORIZONS, Forecast, fitting, use
from draftmill.generation.lengths import LengthLaw, LengthModel
from draftmill.generation.load import ServerLoad

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

HARD_CEILING = 4_096
REFRESH_S = 0.05

FIRST_CAUTION = 1.0
CAUTION_RANGE = (0.0, 4.0)
"""Standard deviations of the predicted use that must fit below the capacity: a little room where the server never retracts, more where
it does. Each retraction adds CAUTION_STEP, each answer takes some off again, so that retractions settle at TOLERATED / sqrt(n) an answer
with n requests on the server: a retraction costs the same on every host, and a standard deviation is a smaller part of the room the
more requests there are."""

CAUTION_STEP = 0.01
TOLERATED = 4.0
PRESSURE_STEP = 0.5

PART = 0.9
"""Of an equal share of the cache: below it, a job goes before those above it."""

HOLD_S = 5.0
FIRST_WINDOW = 8


class Pace:
    """The number of requests in flight that is right at present. Times are seconds of one clock, which jobs on one board share.

    ceiling: never more than this; None is `auto`. capacity: KV tokens, as far as known. board: where the server's jobs meet; None
    where there is no other job.
    wants: whether it is the pace that holds sending back; others leave room only for a job that wants it.
    """

    def __init__(
        self, flights: Flights, lengths: LengthModel, ceiling: int | None, capacity: float | None, board: Board | None = None
    ) -> None:
        self._flights = flights
        self._lengths = lengths
        self._ceiling = min(ceiling or HARD_CEILING, HARD_CEILING)
        self._capacity = capacity
        self._board = board
        self._load = ServerLoad()
        self._retracted: float | None = None
        self._unexplained = 0.0
        self._caution = FIRST_CAUTION
        self._hold_until = -math.inf
        self._window = float(FIRST_WINDOW)
        self._cap = 0
        self._cap_until = -math.inf
        self.wants = True

    @property
    def answer_seconds(self) -> float:
        """What an answer of mean length takes at the present rate."""
        return self._lengths.law().mean / max(self._flights.progress.rate, 1e-3)

    def restart(self, capacity: float | None) -> None:
        """Another server process: what was known of the load is void."""
        self._capacity = capacity
        self._load = ServerLoad()
        self._retracted = None
        self._unexplained = 0.0
        self._hold_until = self._cap_until = -math.inf

    def cap(self, now: float, outstanding: int) -> int:
        """How many requests may be outstanding now; at least 1, so that there is always something to learn from."""
        if now >= self._cap_until:
            self._cap = max(1, min(self._ceiling, self._wanted(now, outstanding)))
            self._cap_until = now + REFRESH_S
        return self._cap

    def observe(self, now: float, load: ServerLoad) -> None:
        """A look at the server."""
        self._load = load
        self._capacity = load.capacity_tokens or self._capacity
        own = self.publish(now)
        if load.used_tokens is not None:
            self._unexplained = load.used_tokens - own.use[0] - sum(other.held(now) for other in self._others(now))
        self._note_retracted(load.retracted)
        self._cap_until = -math.inf

    def publish(self, now: float) -> Forecast:
        """Tell the other jobs what is to be expected of this one, and return it."""
        _, ahead, mean, variance = self._predicted(now)
        wants = self.wants and len(self._flights) < self._ceiling and now >= self._hold_until
        forecast = Forecast(now, self._flights.progress.rate, wants, ahead.tolist(), mean.tolist(), variance.tolist())
        if self._board is not None:
            self._board.publish(forecast)
        return forecast

    def leave(self) -> None:
        """Nothing of this job is out any more."""
        if self._board is not None:
            self._board.withdraw()

    def finished(self) -> None:
        """An answer came back."""
        self._window += 1
        own = max(1, len(self._flights))
        everybody = max(own, (self._load.running or 0.0) + (self._load.waiting or 0.0))
        # Retractions are counted of everybody's requests, answers only of our own.
        self._be_careful(-CAUTION_STEP * TOLERATED / math.sqrt(everybody) * min(everybody / own, 10.0))

    def pressure(self, now: float) -> None:
        """The server refused a request, or aborted it for lack of memory."""
        if now >= self._hold_until:  # a burst of refusals is one event
            self._window = max(1.0, min(self._window, len(self._flights)) / 2)
            self._be_careful(PRESSURE_STEP)
        self._hold_until = now + HOLD_S
        self._cap_until = -math.inf

    def _note_retracted(self, total: float | None) -> None:
        """Not every look asks for the server's totals, so the last one that did is what this one is held against."""
        if total is None:
            return
        if self._retracted is not None and total > self._retracted:
            self._be_careful(CAUTION_STEP * (total - self._retracted))
        self._retracted = total

    def _be_careful(self, more: float) -> None:
        """Leave more room free, or less."""
        low, high = CAUTION_RANGE
        self._caution = min(high, max(low, self._caution + min(more, PRESSURE_STEP)))

    def _others(self, now: float) -> list[Forecast]:
        return self._board.others(now) if self._board is not None else []

    def _wanted(self, now: float, outstanding: int) -> int:
        if now < self._hold_until:
            return outstanding
        queued = self._load.waiting is not None and self._load.waiting > self._queue_allowed()
        if queued:
            return outstanding
        if self._capacity is None or self._load.used_tokens is None:
            return int(self._window)
        return outstanding + self._fitting(now, self._capacity)

    def _queue_allowed(self) -> float:
        return max(1.0, 0.02 * (self._load.running or 0.0))

    def _fitting(self, now: float, capacity: float) -> int:
        """How many fresh requests fit beside ours, those of the other jobs, and what of the server's load nobody accounts for."""
        import numpy as np

        law, ahead, taken, variance = self._predicted(now)
        others = self._others(now)
        if self._has_its_part(capacity, float(taken.max()), others):
            return 0
        for other in others:
            theirs, their_variance = other.seen(now, ahead)
            taken, variance = taken + theirs, variance + their_variance
        prompt = float(self._flights.prompt_tokens().mean()) if len(self._flights) else 0.25 * law.mean
        fresh, spread = use(law, np.zeros(1), np.array([prompt]), ahead)
        return int(fitting(fresh, spread, variance, capacity - self._unexplained - taken, self._caution))

    def _predicted(self, now: float) -> tuple[LengthLaw, Floats, Floats, Floats]:
        """The law of answer lengths as known now, and what our own requests will hold: tokens ahead, KV tokens then, their variance."""
        import numpy as np

        ages = self._flights.ages(now)
        law = self._lengths.law(ages)
        ahead = np.array(HORIZONS) * law.mean
        return law, ahead, *use(law, ages, self._flights.prompt_tokens(), ahead)

    def _has_its_part(self, capacity: float, peak: float, others: list[Forecast]) -> bool:
        """Whether this job must leave what is free to another one that wants it and has less than its part."""
        wanting = [other.peak for other in others if other.wants]
        part = PART * capacity / (len(wanting) + self.wants) if wanting else math.inf
        return peak >= part and min(wanting) < part
