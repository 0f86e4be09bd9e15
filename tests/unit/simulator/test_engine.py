"""The engine against closed forms, and against a simulation that takes one step at a time."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.simulator.engine import Engine, Sequence
from draftmill.simulator.profile import HOSTS, HostProfile

SMALL = HostProfile("small", base_s=0.05, per_request_s=0.001, kv_tokens=1_000, prefill_tokens_per_s=1_000.0)


def run_out(engine: Engine) -> dict[str, tuple[str, float, int]]:
    """Advance from event to event until nothing is left: rid -> (ending, time, tokens)."""
    ended = {}
    while (event := engine.next_event()) is not None:
        for entry in engine.advance(event):
            ended[entry.rid] = (entry.ending, entry.at, entry.tokens)
    return ended


@pytest.mark.parametrize(("running", "rate"), [(1, 21), (72, 936), (150, 1_358)])
def test_decode_rate_of_the_first_host(running: int, rate: int) -> None:
    """The three measured points of the timing model, with short prompts so that the cache is no limit."""
    engine = Engine(HOSTS["rtx6000-fp8"])
    for number in range(running):
        engine.submit(Sequence(str(number), prompt=1, answer=1_000))
    ended = run_out(engine)
    decoding = engine.counters.busy_s - running / engine.profile.prefill_tokens_per_s
    assert len(ended) == running
    assert running * 1_000 / decoding == pytest.approx(rate, rel=0.03)


def test_one_request_takes_prefill_and_its_steps() -> None:
    engine = Engine(SMALL)
    engine.submit(Sequence("a", prompt=100, answer=10))
    ending, at, tokens = run_out(engine)["a"]
    assert (ending, tokens) == ("finished", 10)
    assert at == pytest.approx(100 / 1_000 + 10 * SMALL.step_s(1))


def test_a_full_cache_makes_requests_wait() -> None:
    engine = Engine(SMALL)
    engine.submit(Sequence("first", prompt=900, answer=50))
    engine.submit(Sequence("second", prompt=900, answer=50))
    engine.advance(1.0)
    assert (engine.running, engine.waiting) == (1, 1)
    ended = run_out(engine)
    assert ended["second"][1] == pytest.approx(2 * ended["first"][1])
    assert engine.counters.retracted == 0


@pytest.mark.parametrize("restart", [True, False])
def test_the_youngest_is_retracted_and_ends_all_the_same(restart: bool) -> None:
    engine = Engine(dataclasses.replace(SMALL, restart_retracted=restart))
    engine.submit(Sequence("old", prompt=300, answer=400))
    engine.submit(Sequence("young", prompt=300, answer=400))
    ended = run_out(engine)
    assert {rid: entry[0] for rid, entry in ended.items()} == {"old": "finished", "young": "finished"}
    assert ended["old"][1] < ended["young"][1]
    assert engine.counters.answered_tokens == 800
    # 200 steps fit beside each other. With its tokens kept, the young one waits for the room of 500 and goes on; without, it
    # begins again as soon as its prompt fits, and gets half as far each time: nearly 400 tokens in vain.
    assert engine.counters.retracted == (8 if restart else 1)
    assert engine.counters.decoded_tokens == 800 + (392 if restart else 0)


def test_an_abort_lets_the_retracted_back_in() -> None:
    engine = Engine(SMALL)
    for rid in ("old", "young"):
        engine.submit(Sequence(rid, prompt=300, answer=400))
    while not engine.counters.retracted:
        engine.advance(engine.next_event() or 0)
    assert (engine.running, engine.waiting) == (1, 1)
    engine.abort("old")
    assert run_out(engine)["young"][0] == "finished"


def test_what_never_fits_ends_out_of_memory() -> None:
    engine = Engine(SMALL)
    engine.submit(Sequence("prompt", prompt=1_000, answer=1))
    engine.submit(Sequence("answer", prompt=500, answer=600))
    engine.submit(Sequence("fits", prompt=10, answer=10))
    ended = run_out(engine)
    assert {rid: entry[0] for rid, entry in ended.items()} == {"prompt": "out_of_memory", "answer": "out_of_memory", "fits": "finished"}
    assert engine.used == 0


def test_abort_frees_the_cache_at_once() -> None:
    engine = Engine(SMALL)
    engine.submit(Sequence("long", prompt=900, answer=90))
    engine.submit(Sequence("queued", prompt=900, answer=90))
    engine.advance(2.0)
    before = engine.used
    assert before > 900
    gone = engine.abort("long")
    assert gone is not None
    assert gone.tokens == before - 900
    assert engine.used == 0
    assert engine.abort("long") is None
    assert engine.abort("queued") is not None
    assert engine.next_event() is None


def test_an_arrival_during_a_step_waits_for_its_end() -> None:
    engine = Engine(SMALL)
    engine.submit(Sequence("a", prompt=10, answer=100))
    engine.advance(1.005)
    late = Sequence("b", prompt=10, answer=1, arrived=1.005)
    engine.submit(late)
    engine.advance(1.005)
    assert late.admission == -1
    engine.advance(engine.next_event() or 0)
    assert late.admission == 2


def test_frozen_and_slow() -> None:
    engine = Engine(SMALL)
    engine.submit(Sequence("a", prompt=1, answer=100))
    engine.advance(1.0)
    done = engine.generated("a")
    engine.frozen = True
    assert engine.next_event() is None
    engine.advance(50.0)
    assert engine.generated("a") == done
    engine.frozen, engine.slowdown = False, 10.0
    engine.advance(60.0)
    assert engine.generated("a") - done == int(10.0 / (10 * SMALL.step_s(1)))


def by_single_steps(profile: HostProfile, jobs: list[tuple[float, int, int]]) -> dict[str, float]:
    """The same rules, one step at a time and as plainly as possible: rid -> time of its end."""
    clock, used, ends = 0.0, 0, {}
    arrivals = [(at, str(number), prompt, answer) for number, (at, prompt, answer) in enumerate(jobs)]
    waiting: list[list] = []
    running: list[list] = []
    while arrivals or waiting or running:
        if not waiting and not running:
            clock = max(clock, arrivals[0][0])
        while arrivals and arrivals[0][0] <= clock:
            _, rid, prompt, answer = arrivals.pop(0)
            waiting.append([rid, prompt, answer, 0])
        prefill = 0
        while (
            waiting and len(running) < profile.max_running and used + waiting[0][1] + waiting[0][3] + len(running) + 1 <= profile.kv_tokens
        ):
            entry = waiting.pop(0)
            running.append(entry)
            used += entry[1] + entry[3]
            prefill += entry[1] + entry[3]
        if prefill:
            clock += prefill / profile.prefill_tokens_per_s
            continue
        while used + len(running) > profile.kv_tokens:
            entry = running.pop()
            used -= entry[1] + entry[3]
            entry[3] = 0 if profile.restart_retracted else entry[3]
            waiting.insert(0, entry)
        clock += profile.step_s(len(running))
        for entry in list(running):
            entry[3] += 1
            used += 1
            if entry[3] == entry[2]:
                running.remove(entry)
                used -= entry[1] + entry[3]
                ends[entry[0]] = clock
    return ends


@given(seed=st.integers(0, 10**6), max_running=st.sampled_from([3, 50]), restart=st.booleans())
@settings(max_examples=60)
def test_leaps_equal_single_steps(seed: int, max_running: int, restart: bool) -> None:
    """However the caller advances, requests end when they would end by taking every step for itself."""
    rng = random.Random(seed)
    profile = dataclasses.replace(SMALL, max_running=max_running, restart_retracted=restart)
    at, jobs = 0.0, []
    for _ in range(40):
        at += rng.expovariate(1.0)
        jobs.append((at, rng.randint(1, 200), rng.randint(1, 300)))
    expected = by_single_steps(profile, jobs)

    engine, ended = Engine(profile), {}
    for number, (arrived, prompt, answer) in enumerate(jobs):
        for _ in range(rng.randint(0, 3)):  # looking in between must change nothing
            ended |= {entry.rid: entry.at for entry in engine.advance(rng.uniform(engine.clock, max(engine.clock, arrived)))}
        ended |= {entry.rid: entry.at for entry in engine.advance(arrived)}
        engine.submit(Sequence(str(number), prompt, answer, arrived))
        ended |= {entry.rid: entry.at for entry in engine.advance(arrived)}
    ended |= {rid: entry[1] for rid, entry in run_out(engine).items()}
    assert ended == pytest.approx(expected)
    assert engine.used == 0
