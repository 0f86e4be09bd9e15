"""Schedules of misfortune: what goes wrong during a generation, and when. A seed decides all of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

SPEEDUP = 20.0
"""Of the simulated server: virtual seconds a real second. Fault times are virtual."""

PROMPTS = 160
MEAN_TOKENS = 50
MAX_TOKENS = 400


@dataclass(frozen=True)
class Event:
    """One thing that goes wrong once the journal has `at_rows` rows, or nothing else has happened for some time.

    kind: `kill_client`, `stop_client`, `rival` (a second client beside the first), `kill_server`, `give_up_server` (its supervisor
    lets it be dead), `fault` (one the simulator knows), `disk_full`.
    """

    at_rows: int
    kind: str
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Schedule:
    """All that goes wrong. budget: completion tokens; None is more than the prompts can bring. run_again: start once more at the end."""

    seed: int
    in_flight: int | str
    budget: int | None
    drain_s: float
    events: tuple[Event, ...]
    run_again: bool

    @classmethod
    def draw(cls, seed: int) -> Schedule:
        """The schedule of this seed."""
        rng = random.Random(seed)
        budget = rng.choice([None, None, 2_000, 4_000, 6_000])
        expected_rows = PROMPTS if budget is None else budget // MEAN_TOKENS
        events = [_event(rng, int(rng.uniform(0.0, 0.95) * expected_rows)) for _ in range(rng.randint(3, 7))]
        return cls(
            seed=seed,
            in_flight=rng.choice(["auto", 3, 8, 24]),
            budget=budget,
            drain_s=rng.choice([0, 0.2, 5]),
            events=tuple(sorted(events, key=lambda event: event.at_rows)),
            run_again=rng.random() < 0.3,
        )

    @property
    def fills_the_disk(self) -> bool:
        """Whether it needs a small disk."""
        return any(event.kind == "disk_full" for event in self.events)


def _event(rng: random.Random, at_rows: int) -> Event:
    kind = rng.choices(
        ["kill_client", "stop_client", "rival", "kill_server", "give_up_server", "fault", "disk_full"], weights=[5, 1, 1, 4, 1, 8, 2]
    )[0]
    if kind == "kill_client":
        return Event(at_rows, kind, {"tail": rng.choice(["none", "none", "row", "bytes"]), "cut": rng.random(), "seed": rng.random()})
    if kind == "kill_server":
        return Event(at_rows, kind, {"down_s": rng.choice([0, 0.2, 0.8])})
    if kind == "disk_full":
        return Event(at_rows, kind, {"for_s": rng.choice([0.2, 0.6, 1.5]), "kill": rng.random() < 0.3})
    return Event(at_rows, kind, _fault(rng) if kind == "fault" else {})


def _fault(rng: random.Random) -> dict[str, Any]:
    """A fault in the simulator's own JSON form."""
    few = {"count": rng.randint(1, 6), "share": rng.choice([0.3, 1.0]), "seed": rng.randrange(1_000)}
    for_s = SPEEDUP * rng.choice([0.1, 0.5])
    faults: list[dict[str, Any]] = [
        {"kind": rng.choice(["reset", "cut"]), **few},
        {"kind": rng.choice(["reset", "cut"]), **few},
        {"kind": rng.choice(["abort", "out_of_memory", "error_body", "wrong_count", "foreign_id"]), **few},
        {"kind": rng.choice(["null_finish", "plain_finish", "old_layout", "prompt_tail"]), "count": None},
        {"kind": "status", "value": rng.choice([500, 502, 503, 504, 429]), **few},
        {"kind": "hang", "count": 1},
        {"kind": rng.choice(["silent", "scheduler_dead"]), "for_s": rng.choice([None, for_s])},
        {"kind": rng.choice(["slow", "rate_collapse"]), "for_s": for_s},
        {"kind": "queue_full", "for_s": for_s},
        {"kind": "crash", "value": for_s},
        {"kind": "other_model"},
        {"kind": "keep_alive", "value": 0.02},
    ]
    return rng.choice(faults)
