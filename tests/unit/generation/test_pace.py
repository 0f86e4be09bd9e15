"""The pace alone, fed with looks at a server; and two jobs that share a server, in virtual time."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftmill.generation.board import Board
from draftmill.generation.flights import Flights, Progress
from draftmill.generation.lengths import LengthModel
from draftmill.generation.load import ServerLoad
from draftmill.generation.pace import Pace
from draftmill.generation.step import generate, open_journal
from draftmill.jobs.step import StepContext
from draftmill.layout import Workspace
from draftmill.simulator import virtual
from draftmill.simulator.engine import Counters
from draftmill.simulator.material import Material, campaign_folder
from draftmill.simulator.profile import HostProfile
from draftmill.simulator.server import SimulatedServer, SimulatedSource
from tests.plans import make_dataset, make_plan

CAPACITY = 30_000
HOST = HostProfile("small", base_s=0.02, per_request_s=0.0005, kv_tokens=CAPACITY, vocab_size=2_000, context_length=8_000)


def make_pace(ceiling: int | None = None, under_way: int = 0, board: Board | None = None) -> Pace:
    """`under_way`: requests of various ages, at 20 tokens a second."""
    flights = Flights(Progress())
    for number in range(under_way):
        flights.start(str(number), 60, -number % 10)
    return Pace(flights, LengthModel(100, 800), ceiling, CAPACITY, board)


def look(used: float = 0, waiting: float = 0, retracted: float | None = None, running: float = 0) -> ServerLoad:
    return ServerLoad(running, waiting, used, CAPACITY, 1_000.0, None, retracted)


def test_an_empty_server_is_filled_and_a_ceiling_keeps_it_from_that() -> None:
    pace, held = make_pace(), make_pace(ceiling=7)
    for each in (pace, held):
        each.observe(0.0, look())
    assert 50 < pace.cap(0.0, 0) < CAPACITY / 40
    assert held.cap(0.0, 0) == 7


def test_retractions_are_noticed_although_not_every_look_counts_them() -> None:
    pace, calm = make_pace(under_way=60), make_pace(under_way=60)
    totals = [0, None, None, 400, None, None, 800]
    for second, total in enumerate(totals):
        pace.observe(10.0 + second, look(9_000, retracted=total, running=60))
        calm.observe(10.0 + second, look(9_000, retracted=total and 0, running=60))
    assert 60 < pace.cap(20.0, 60) < calm.cap(20.0, 60)


def test_another_server_process_counts_from_zero() -> None:
    pace, calm = make_pace(under_way=60), make_pace(under_way=60)
    for each, total in ((pace, 5_000), (calm, 0)):
        each.observe(10.0, look(retracted=0))
        each.restart(CAPACITY)
        each.observe(11.0, look(9_000, retracted=total, running=60))
    assert pace.cap(12.0, 60) == calm.cap(12.0, 60) > 60


def test_a_queue_is_not_added_to() -> None:
    pace = make_pace()
    pace.observe(0.0, look(waiting=20, running=100))
    assert pace.cap(0.0, 120) == 120


def test_pressure_holds_and_passes() -> None:
    pace = make_pace()
    pace.observe(0.0, look())
    before = pace.cap(0.0, 0)
    pace.pressure(1.0)
    assert pace.cap(1.0, 10) == 10
    pace.observe(10.0, look())
    assert 10 < pace.cap(10.0, 0) < before


@dataclass
class Shared:
    """Two jobs on one server: (seconds, in flight) of each, and what the server did."""

    seen: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: {"a": [], "b": []})
    counters: Counters = field(default_factory=Counters)
    responses: int = 0

    def together(self) -> tuple[Any, Any]:
        """In flight of both while both were well under way."""
        a, b = (np.array(self.seen[name]) for name in ("a", "b"))
        begin, end = max(a[0, 0], b[0, 0]) + 40, min(a[-1, 0], b[-1, 0]) - 60
        return tuple(one[(one[:, 0] > begin) & (one[:, 0] < end), 1] for one in (a, b))  # type: ignore[return-value]


def share(root: Path, budget_a: int, mean_b: int, budget_b: int, b_starts_at: float, seed: int = 0) -> Shared:
    """Job `a` has answers of 100 tokens on average, `b` has answers of `mean_b`; each for itself would fill the server."""
    budgets = {"a": (100, budget_a), "b": (mean_b, budget_b)}
    plan = make_plan(
        *[
            make_dataset(name, expected_tokens=mean, budget_tokens=budget, max_new_tokens=8 * mean, in_flight="auto")
            for name, (mean, budget) in budgets.items()
        ]
    )
    material, shared = Material.of(plan, seed, prompt_tokens=60), Shared()
    for dataset in plan.datasets:
        material.write(campaign_folder(root, plan), dataset, HOST.vocab_size)

    async def both() -> None:
        async with SimulatedServer(HOST, seed, workload=material.workload, in_memory=True) as server:

            async def one(name: str, starts_at: float) -> None:
                await asyncio.sleep(starts_at)

                def note(_message: str, **numbers: Any) -> None:
                    shared.seen[name].append((asyncio.get_running_loop().time(), numbers["in_flight"]))

                context = StepContext(plan, Workspace(root), note, name, threading.Event())
                with open_journal(context) as journal:
                    result = await generate(context, journal, SimulatedSource(server), server.connector)
                shared.responses += result.responses

            await asyncio.gather(one("a", 0.0), one("b", b_starts_at))
            shared.counters = server.driver.totals()

    virtual.run(both())
    return shared


@pytest.mark.parametrize(("budget_a", "b_starts_at"), [(300_000, 0), (400_000, 120)])
def test_two_like_jobs_share_a_server_half_and_half_without_swinging(tmp_path: Path, budget_a: int, b_starts_at: float) -> None:
    shared = share(tmp_path, budget_a, 100, 300_000, b_starts_at)
    a, b = shared.together()
    assert len(a) > 20
    assert 0.8 < a.mean() / b.mean() < 1.25
    # Chance alone moves each by about its square root and by the spread of the lengths; a swing would move all of it.
    assert a.std() < 0.25 * a.mean()
    assert b.std() < 0.25 * b.mean()
    assert shared.counters.retracted < 0.4 * shared.responses


def test_long_answers_and_short_ones_each_get_about_half_of_the_cache(tmp_path: Path) -> None:
    shared = share(tmp_path, 150_000, 400, 300_000, 0)
    a, b = shared.together()
    # A request holds its prompt and, at a random moment, E[X^2] / (2 E[X]) tokens of its answer: about its mean for these lengths.
    assert 0.5 < (a.mean() * (60 + 100)) / (b.mean() * (60 + 400)) < 2.0
    assert min(a.min(), b.min()) >= 5
    assert shared.counters.retracted < 0.5 * shared.responses


def test_who_has_its_part_leaves_what_is_free_to_who_has_not(tmp_path: Path) -> None:
    much, little = (make_pace(under_way=count, board=Board(tmp_path, name)) for count, name in ((100, "much"), (10, "little")))
    for pace in (much, little):
        pace.observe(10.0, look(17_000, running=110))
    assert much.cap(11.0, 100) == 100
    assert little.cap(11.0, 10) > 10
    little.wants = False
    little.publish(12.0)
    assert much.cap(12.0, 100) > 100


def test_what_another_job_will_hold_is_left_free_before_the_server_shows_it(tmp_path: Path) -> None:
    first, second, alone = make_pace(board=Board(tmp_path, "first")), make_pace(board=Board(tmp_path, "second")), make_pace()
    for pace in (first, second, alone):
        pace.observe(0.0, look())
    for number in range(300):
        first._flights.start(str(number), 60, 0.1)
    first.publish(0.1)
    assert second.cap(0.2, 0) < 0.5 * alone.cap(0.2, 0)
    first.leave()
    assert second.cap(1.0, 0) == alone.cap(1.0, 0)
