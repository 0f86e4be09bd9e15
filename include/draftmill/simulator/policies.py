"""Other ways to admit work, to hold generation against: fixed numbers in flight, and an oracle that knows every answer's length.

They run on the engine directly: no client, no journal, nothing to learn. Their answers are those that generation gets, prompt by prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from draftmill.simulator.engine import Counters, Engine
from draftmill.simulator.engine import Sequence as Request
from draftmill.simulator.profile import HostProfile
from draftmill.spec.dataset import LengthClass

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Work:
    """A data set as a policy sees it: (prompt tokens, answer tokens) in work order, and its budget of completion tokens."""

    name: str
    length_class: LengthClass
    budget: int
    requests: Sequence[tuple[int, int]]

    def nearest(self) -> Sequence[tuple[int, int]]:
        """The first requests of the order whose answers come nearest to the budget: what an oracle would admit."""
        total = 0
        for count, total in enumerate(accumulate(answer for _, answer in self.requests), 1):
            if total >= self.budget:
                last = self.requests[count - 1][1]
                return self.requests[: count if total - self.budget <= last / 2 else count - 1]
        return self.requests


@dataclass
class Outcome:
    """How a policy did. seconds: of the whole campaign. tokens, spans: of each data set."""

    seconds: float = 0.0
    tokens: dict[str, int] = field(default_factory=dict)
    seconds_of: dict[str, float] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)

    def budget_error(self, work: Work) -> float:
        """(total - budget) / budget."""
        return self.tokens[work.name] / work.budget - 1.0


def static(host: HostProfile, campaign: Iterable[Work], in_flight: Callable[[Work], int]) -> Outcome:
    """A fixed number in flight, one data set after the other; at the budget nothing more is sent, and what is out is awaited and kept."""
    outcome = Outcome()
    for work in campaign:
        engine = Engine(host)
        tokens, sent = 0, 0

        def send(count: int, work: Work = work, engine: Engine = engine) -> None:
            nonlocal sent
            for prompt, answer in work.requests[sent : sent + count]:
                engine.submit(Request(str(sent), prompt, answer, engine.clock))
                sent += 1

        send(in_flight(work))
        while (event := engine.next_event()) is not None:
            ended = engine.advance(event)
            for entry in ended:
                tokens += entry.tokens if entry.ending == "finished" else 0
            if tokens < work.budget:
                send(len(ended))
        outcome.tokens[work.name] = tokens
        outcome.seconds_of[work.name] = engine.clock
        outcome.seconds += engine.clock
    return outcome


def sweep(host: HostProfile, campaign: Sequence[Work], numbers: Iterable[int]) -> tuple[dict[LengthClass, int], Outcome]:
    """The number for each class that makes the static plan's campaign shortest, and that plan's outcome."""
    tried = {number: static(host, campaign, lambda _, number=number: number) for number in numbers}  # type: ignore[misc]
    best: dict[LengthClass, int] = {}
    for length_class in {work.length_class for work in campaign}:
        names = [work.name for work in campaign if work.length_class == length_class]
        best[length_class] = min(tried, key=lambda number: sum(tried[number].seconds_of[name] for name in names))
    return best, static(host, campaign, lambda work: best[work.length_class])


class _Future:
    """The KV cache from now on, as an oracle knows it: what runs holds a token more each step, until its last."""

    def __init__(self, capacity: int) -> None:
        import numpy as np

        self._capacity = capacity
        self._ends: Ints = np.empty(0, np.int64)
        self._offsets: Ints = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    def pass_to(self, step: int) -> None:
        """Forget what ended by `step`."""
        first = int(self._ends.searchsorted(step, side="right"))
        self._ends, self._offsets = self._ends[first:], self._offsets[first:]

    def take(self, step: int, prompt: int, answer: int) -> bool:
        """Admit a request at `step` if the cache then never overflows again; whether it was admitted.

        A request holds offset + t tokens at step t, so the use rises between two ends and is largest just before one of them: at end
        number k, in their order, it is the sum of the offsets from k on, plus their number times the end.
        """
        import numpy as np

        end = step + answer
        place = int(self._ends.searchsorted(end))
        ends, offsets = np.insert(self._ends, place, end), np.insert(self._offsets, place, prompt - step)
        use = np.cumsum(offsets[::-1])[::-1] + np.arange(len(ends), 0, -1) * ends
        if int(use.max()) > self._capacity:
            return False
        self._ends, self._offsets = ends, offsets
        return True


def oracle(host: HostProfile, campaign: Sequence[Work], at_once: int) -> Outcome:
    """Admission by somebody who knows how long every answer will be: as early as the cache allows, never so that it overflows.

    The order is the one generation has to keep to: data sets as given, `at_once` of them open, each in its own order. Budgets are met
    to the nearest answer. Every request is sent at the step from which on it fits, so there is no queue and no retraction.
    """
    engine, future = Engine(host), _Future(host.kv_tokens)
    waiting = [list(reversed(work.nearest())) for work in campaign]
    open_, later = waiting[:at_once], waiting[at_once:]
    sent = 0
    while True:
        future.pass_to(engine.steps)
        progress = True
        while progress and len(future) < host.max_running:
            progress = False
            for queue in open_:
                if queue and future.take(engine.steps, *queue[-1]):
                    engine.submit(Request(str(sent), *queue.pop(), engine.clock))
                    engine.advance(engine.clock)
                    sent, progress = sent + 1, True
            open_ = [queue for queue in open_ if queue]
            while later and len(open_) < at_once:
                open_.append(later.pop(0))
        event = engine.next_event()
        if event is None:
            break
        engine.advance(event)
    tokens = {work.name: sum(answer for _, answer in work.nearest()) for work in campaign}
    return Outcome(engine.clock, tokens, {}, engine.counters)


def bound_seconds(host: HostProfile, campaign: Iterable[Work]) -> float:
    """A time that no admission can beat, reordering allowed: the cache is exactly full at every single step.

    A request with prompt p and answer n holds p + 1, ..., p + n tokens at its steps: n p + n (n + 1) / 2 in all. The steps are at least
    that sum over the capacity, all answers over the largest batch, and the longest answer.
    """
    requests = [request for work in campaign for request in work.nearest()]
    tokens = sum(answer for _, answer in requests)
    token_steps = sum(answer * prompt + answer * (answer + 1) / 2 for prompt, answer in requests)
    longest = max(answer for _, answer in requests)
    steps = max(token_steps / host.kv_tokens, tokens / host.max_running, longest)
    prefill = sum(prompt for prompt, _ in requests) / host.prefill_tokens_per_s
    return steps * host.base_s + tokens * host.per_request_s + prefill
