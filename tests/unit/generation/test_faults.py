"""Each fault that the simulator knows, and its right outcome."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from draftmill.errors import PermanentError, StoppedError, TemporaryError
from draftmill.generation.client import Client
from draftmill.serving.endpoint import Endpoint, ServerGone
from draftmill.simulator.faults import REQUEST_FAULTS, STATE_FAULTS, Fault
from draftmill.simulator.server import SimulatedServer, SimulatedSource
from tests.unit.generation.rig import Rig, make_prompts, make_server, until

RETRIED = {
    "abort": "aborted",
    "out_of_memory": "out_of_memory",
    "error_body": "error_body",
    "wrong_count": "wrong_count",
    "foreign_id": "foreign_id",
    "status": "server_error",
    "reset": "connection",
    "cut": "connection",
}
HARMLESS = {"null_finish", "plain_finish", "old_layout", "prompt_tail"}
ON_THEIR_OWN = {"hang"}
OF_STATE = {"slow", "rate_collapse", "silent", "scheduler_dead", "crash", "other_model", "queue_full", "keep_alive"}


def test_no_fault_of_the_simulator_is_forgotten() -> None:
    assert set(RETRIED) | HARMLESS | ON_THEIR_OWN == set(REQUEST_FAULTS)
    assert set(STATE_FAULTS) == OF_STATE


@pytest.mark.parametrize("kind", RETRIED)
async def test_a_failed_attempt_is_counted_and_made_again(tmp_path: Path, kind: str) -> None:
    rig = Rig(tmp_path, make_prompts(60), budget_tokens=10**6)
    async with make_server(faults=[Fault(kind, after=5, count=3)]) as server:
        result = await rig.generate(server)
        assert (result.outcome, result.responses) == ("exhausted", 60)
        assert result.failures[RETRIED[kind]] >= 3
        rig.check(server)


@pytest.mark.parametrize(
    ("status", "kind"), [(500, "server_error"), (502, "server_error"), (504, "server_error"), (503, "pushback"), (429, "pushback")]
)
async def test_every_status_that_passes_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, kind: str) -> None:
    monkeypatch.setattr("draftmill.generation.faults.MAX_WAIT_S", 0.2)
    rig = Rig(tmp_path, make_prompts(30), budget_tokens=10**6)
    async with make_server(faults=[Fault("status", after=5, count=4, value=status)]) as server:
        result = await rig.generate(server)
        assert (result.responses, result.failures) == (30, {kind: 4})
        rig.check(server)


@pytest.mark.parametrize("kind", sorted(HARMLESS))
async def test_odd_but_sound_answers_are_kept_exactly(tmp_path: Path, kind: str) -> None:
    rig = Rig(tmp_path, make_prompts(60), budget_tokens=10**6)
    async with make_server(faults=[Fault(kind, count=None)]) as server:
        result = await rig.generate(server)
        assert (result.responses, result.failures, server.seen.requests) == (60, {}, 60)
        rig.check(server)


async def test_a_request_that_is_never_answered_is_aborted_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftmill.generation.dispatch.LATE_LEAST_S", 0.5)
    rig = Rig(tmp_path, make_prompts(60), budget_tokens=10**6, max_new_tokens=200)
    async with make_server(cap=200, faults=[Fault("hang", after=5, count=1)]) as server:
        result = await rig.generate(server)
        assert (result.responses, result.failures["deadline"]) == (60, 1)
        assert server.seen.aborts_asked >= 1
        rig.check(server)


@pytest.mark.parametrize("kind", ["slow", "rate_collapse"])
async def test_a_slow_server_is_waited_for(tmp_path: Path, kind: str) -> None:
    rig = Rig(tmp_path, make_prompts(40), budget_tokens=10**6)
    async with make_server(faults=[Fault(kind, after=10, for_s=2, value=40)]) as server:
        result = await rig.generate(server)
        assert (result.responses, result.failures, server.incarnation) == (40, {}, 1)
        rig.check(server)


@pytest.mark.parametrize("kind", ["silent", "scheduler_dead"])
async def test_a_server_that_generates_nothing_is_reported_once_and_its_requests_go_to_the_next(tmp_path: Path, kind: str) -> None:
    rig = Rig(tmp_path, make_prompts(60), budget_tokens=10**6, profile={"silent_s": 1})
    async with make_server(faults=[Fault(kind, after=20)], restart_s=0.2) as server:
        restarts: list[int] = []
        real = server.restart

        def restart() -> None:
            restarts.append(server.incarnation)
            server.clear_faults()
            real()

        server.restart = restart  # type: ignore[method-assign]
        result = await rig.generate(server)
        assert (result.responses, restarts, server.incarnation) == (60, [1], 2)
        assert any("has generated nothing" in line for line in rig.lines)
        rig.check(server)


async def test_a_crash_loses_and_doubles_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path, make_prompts(80), budget_tokens=10**6)
    async with make_server(faults=[Fault("crash", after=30, value=0.5)]) as server:
        result = await rig.generate(server)
        assert (result.responses, server.incarnation) == (80, 2)
        rig.check(server)


async def test_a_server_that_stays_dead_ends_the_run_for_a_retry(tmp_path: Path) -> None:
    rig = Rig(tmp_path, make_prompts(80), budget_tokens=10**6)
    async with make_server(faults=[Fault("crash", after=30, value=-1)]) as server:
        with pytest.raises(ServerGone, match="start it again"):
            await rig.generate(server)
        assert isinstance(ServerGone("x"), TemporaryError)
        rig.check(server)
    async with make_server() as server:
        result = await rig.again().generate(server)
        assert result.responses == 80


async def test_another_model_behind_the_port_gets_nothing_and_is_named(tmp_path: Path) -> None:
    rig = Rig(tmp_path, make_prompts(40), budget_tokens=10**6)
    async with make_server(faults=[Fault("other_model", value="other/model")], restart_s=0.2) as server:
        server.driver.look()
        real = server.restart

        def restart() -> None:
            server.clear_faults()
            real()

        server.restart = restart  # type: ignore[method-assign]
        result = await rig.generate(server)
        assert (result.responses, server.seen.requests, server.incarnation) == (40, 40, 2)
        assert any("serves other/model, not simulated/model" in line for line in rig.lines)


async def test_after_a_crash_another_model_on_the_port_answers_nothing_that_is_kept(tmp_path: Path) -> None:
    """Something else has taken the port of the server that died."""
    rig = Rig(tmp_path, make_prompts(60), budget_tokens=10**6)
    async with make_server(faults=[Fault("crash", after=20, value=0.3)], restart_s=0.2) as server:
        real, seen = server.restart, {}

        def restart() -> None:
            seen["by the other"] = server.seen.requests - seen["before"]
            server.clear_faults()
            real()

        server.restart = restart  # type: ignore[method-assign]
        running = asyncio.create_task(rig.generate(server, Unaware(server)))
        await until(lambda: not server.state.up)
        seen["before"] = server.seen.requests
        server.add_faults(Fault("other_model", value="other/model"))
        result = await running
        assert (result.responses, seen["by the other"], server.incarnation) == (60, 0, 3)
        rig.check(server)


class Unaware(SimulatedSource):
    """A supervisor that has not noticed the crash: it knows of a newer server only once this one was reported."""

    def __init__(self, server: SimulatedServer) -> None:
        super().__init__(server)
        self._known = server.incarnation

    async def endpoint(self, newer_than: int = -1, timeout_s: float | None = None) -> Endpoint:
        await until(lambda: self._known > newer_than)
        return replace(await super().endpoint(-1, timeout_s), incarnation=self._known)

    async def report_wedged(self, incarnation: int, why: str) -> None:
        before = self._server.incarnation
        self._server.restart()
        await until(lambda: self._server.incarnation > before)
        self._known = incarnation + 1


async def test_a_full_queue_is_waited_out_without_giving_anything_up(tmp_path: Path) -> None:
    rig = Rig(tmp_path, make_prompts(40), budget_tokens=10**6)
    async with make_server(faults=[Fault("queue_full", after=10, for_s=1)]) as server:
        result = await rig.generate(server)
        assert result.responses == 40
        assert result.failures.keys() <= {"pushback"}
        rig.check(server)


async def test_a_connection_that_the_server_is_about_to_close_is_never_used() -> None:
    """It closes them after a second of idleness: requests on many connections, each sent about a second after the one before it."""
    work = make_prompts(60)
    async with make_server(faults=[Fault("keep_alive", value=1)]) as server, Client(server.endpoint()) as client:

        async def one(number: int) -> None:
            for turn in range(2):
                await asyncio.sleep(turn * (0.97 + 0.001 * number))
                body = {"input_ids": work[number].input_ids, "rid": f"{number}-{turn}", "sampling_params": {"max_new_tokens": 1}}
                await client.generate(orjson.dumps(body))

        await asyncio.gather(*map(one, range(len(work))))
        assert server.seen.requests == 120


async def test_connections_closed_while_idle_cost_nothing_but_a_new_one(tmp_path: Path) -> None:
    rig = Rig(tmp_path, make_prompts(40), budget_tokens=10**6, in_flight=2)
    async with make_server(faults=[Fault("keep_alive", value=0.02)]) as server:
        result = await rig.generate(server)
        assert result.responses == 40
        rig.check(server)


async def test_a_prompt_that_always_fails_is_given_up_and_listed(tmp_path: Path) -> None:
    prompts = make_prompts(40)
    rig = Rig(tmp_path, prompts, budget_tokens=10**6, in_flight=1)
    async with make_server(faults=[Fault("wrong_count", count=6)]) as server:
        result = await rig.generate(server)
    assert (result.outcome, result.responses, result.failures) == ("exhausted", 39, {"wrong_count": 6})
    listed = rig.journal.with_suffix(".failed.jsonl").read_text()
    assert '"kind":"wrong_count"' in listed
    assert '"settled":true' in listed


async def test_many_failures_end_the_run_for_a_retry_which_sends_them_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftmill.generation.faults.MAX_WAIT_S", 0.01)
    rig = Rig(tmp_path, make_prompts(60), budget_tokens=10**6)
    async with make_server(faults=[Fault("status", count=None)]) as server:
        with pytest.raises(TemporaryError, match=r"failed for good.*a retry sends them again"):
            await rig.generate(server)
        server.clear_faults()
        result = await rig.again().generate(server)
        assert (result.outcome, result.responses) == ("exhausted", 60)


async def test_a_wrong_key_is_for_a_person(tmp_path: Path) -> None:
    rig = Rig(tmp_path, make_prompts(10))
    async with make_server(api_key="right") as server:
        server.state.api_key = "other"
        endpoint = server.endpoint

        class Source:
            async def endpoint(self, newer_than: int = -1, timeout_s: float | None = None):
                return replace(endpoint(), api_key="wrong")

            async def report_wedged(self, incarnation: int, why: str) -> None:
                raise AssertionError(why)

        with pytest.raises(PermanentError, match="refuses the API key"):
            await rig.generate(server, Source())


async def test_prompts_that_can_never_be_sent_are_skipped_with_a_reason_and_kill_no_server(tmp_path: Path) -> None:
    prompts = make_prompts(20)
    prompts[3].input_ids.append(5_000)
    prompts[4].input_ids.append(-1)
    prompts[5].input_ids.extend([50] * 9_000)
    prompts[6].input_ids.clear()
    rig = Rig(tmp_path, prompts, budget_tokens=10**6)
    async with make_server() as server:
        result = await rig.generate(server)
        assert result.skipped == {"outside_vocabulary": 2, "too_long": 1, "empty": 1}
        assert (result.responses, server.seen.requests, server.incarnation) == (16, 16, 1)


async def test_max_new_tokens_is_always_sent_and_shrunk_to_the_context(tmp_path: Path) -> None:
    prompts = make_prompts(3)
    prompts[1].input_ids.extend([50] * 8_000)
    rig = Rig(tmp_path, prompts, budget_tokens=10**6)
    async with make_server() as server:
        await rig.generate(server)
        sent = {row.id: row.sampling["max_new_tokens"] for row in rig.check(server)}
    assert sorted(sent.values()) == [8_192 - 8_020 - 16, 400, 400]


async def test_a_stop_drains_and_keeps_what_came_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path, make_prompts(400), budget_tokens=10**6, in_flight=30, profile={"drain_s": 3})
    async with make_server() as server:
        running = asyncio.create_task(rig.generate(server))
        await until(lambda: rig.journal.exists() and rig.journal.stat().st_size > 10_000)
        rig.stop.set()
        with pytest.raises(StoppedError, match="what was finished is kept"):
            await running
        rows = rig.check(server)
        assert 0 < len(rows) < 400
        assert len(rows) == sum(server.seen.answered.values())  # everything that was out came back within the drain
        result = await rig.again().generate(server)
        assert result.responses == 400
        rig.check(server)


async def test_a_stop_that_cannot_drain_aborts_the_rest(tmp_path: Path) -> None:
    rig = Rig(tmp_path, make_prompts(40), budget_tokens=10**6, profile={"drain_s": 0, "silent_s": 60})
    async with make_server(faults=[Fault("slow", value=1_000)]) as server:
        running = asyncio.create_task(rig.generate(server))
        await until(lambda: server.seen.outstanding > 0)
        out = server.seen.outstanding
        rig.stop.set()
        with pytest.raises(StoppedError):
            await running
        assert server.seen.aborts_asked >= out
        assert server.driver.in_flight == 0


async def test_a_stop_waits_as_long_as_it_says_and_no_longer_and_leaves_a_valid_file(tmp_path: Path) -> None:
    rig = Rig(tmp_path, make_prompts(60), budget_tokens=10**6, in_flight=20, profile={"drain_s": 1.5, "silent_s": 60})
    async with make_server() as server:
        running = asyncio.create_task(rig.generate(server))
        await until(lambda: rig.journal.exists() and rig.journal.stat().st_size > 3_000)
        server.add_faults(Fault("slow", value=1_000))
        sent, began = server.seen.requests, asyncio.get_running_loop().time()
        rig.stop.set()
        with pytest.raises(StoppedError):
            await running
        took = asyncio.get_running_loop().time() - began
        assert 1.5 <= took < 1.5 + 4
        assert server.seen.requests <= sent + 20  # those that were sent before the stop was seen
        assert server.driver.in_flight == 0
        rows = rig.check(server)
        assert 0 < len(rows) < 60
        server.clear_faults()
        result = await rig.again().generate(server)
        assert (result.responses, result.new_responses) == (60, 60 - len(rows))
        rig.check(server)
