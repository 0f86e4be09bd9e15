"""What the simulated model answers: how long, and with which ids. Both depend on the prompt and a seed, and on nothing else.

So the same prompt gets the same answer whatever the order, the concurrency or the number of attempts, and two admission policies
can be compared on the very same answers.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import Literal

from draftmill.errors import PermanentError
from draftmill.prompts.prompt import input_hash

_NORMAL = NormalDist()


def capped_mean(mu: float, sigma: float, cap: float) -> float:
    """Mean of min(X, cap) for X log-normal with parameters mu and sigma.

    It is E[X; X < cap] + cap * P(X >= cap), where the first term is exp(mu + sigma^2 / 2) * Phi((ln cap - mu - sigma^2) / sigma).
    """
    z = (math.log(cap) - mu) / sigma
    return math.exp(mu + sigma * sigma / 2) * _NORMAL.cdf(z - sigma) + cap * _NORMAL.cdf(-z)


@dataclass(frozen=True)
class LengthLaw:
    """Answer lengths of a data set, in tokens: log-normal, cut at `cap`, with `mean` after the cut."""

    mean: float
    cap: int
    sigma: float = 0.9

    def __post_init__(self) -> None:
        if not 1 <= self.mean < self.cap * 0.95:
            raise PermanentError(f"answer lengths: a mean of {self.mean:g} tokens needs a cap well above it, not {self.cap}")

    @cached_property
    def mu(self) -> float:
        """Location of the uncut law, found by bisection: `capped_mean` grows with it."""
        low, high = 0.0, math.log(self.cap) + 8 * self.sigma
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if capped_mean(middle, self.sigma, self.cap) < self.mean else (low, middle)
        return low

    def quantile(self, share: float) -> int:
        """The length that `share` of the uncut answers stay below; at least 1."""
        return max(1, round(math.exp(self.mu + self.sigma * _NORMAL.inv_cdf(share))))


@dataclass(frozen=True)
class Answer:
    """A planned answer: its full number of tokens, and how it ends."""

    tokens: int
    finish: Literal["stop", "length"]


@dataclass(frozen=True)
class Workload:
    """Draws answers. `by_marker` gives prompts whose first id is the key a law of their own.

    eos_id ends every answer that stops by itself. Other answer ids lie in [first_id, last_id).
    """

    seed: int = 0
    default: LengthLaw = LengthLaw(200, 10_240)
    by_marker: Mapping[int, LengthLaw] = field(default_factory=dict)
    eos_id: int = 2
    first_id: int = 100
    last_id: int = 1_000

    def answer(self, input_ids: Sequence[int], max_new_tokens: int, ignore_eos: bool = False) -> Answer:
        """How long the answer to `input_ids` is; cut at `max_new_tokens` with finish `length`."""
        law = self.by_marker.get(input_ids[0], self.default)
        tokens = law.quantile(self._uniform(input_hash(input_ids)))
        if ignore_eos or tokens > max_new_tokens:
            return Answer(max_new_tokens, "length")
        return Answer(tokens, "stop")

    def output_ids(self, input_ids: Sequence[int], answer: Answer) -> list[int]:
        """The ids of an answer; a longer answer to the same prompt begins with the shorter one."""
        key = b"%d/%s" % (self.seed, input_hash(input_ids).encode())
        words = array("I", hashlib.shake_128(key).digest(4 * answer.tokens))
        span, first = self.last_id - self.first_id, self.first_id
        ids = [first + word % span for word in words]
        if answer.finish == "stop":
            ids[-1] = self.eos_id
        return ids

    def _uniform(self, prompt_hash: str) -> float:
        digest = hashlib.blake2b(prompt_hash.encode(), digest_size=8, key=b"length/%d" % self.seed).digest()
        return (int.from_bytes(digest, "big") + 0.5) / 2**64
