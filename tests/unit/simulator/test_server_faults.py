"""Each fault does what its line in the help says."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from draftmill.serving.endpoint import ServerGone
from draftmill.simulator.faults import REQUEST_FAULTS, STATE_FAULTS, Fault
from draftmill.simulator.server import SimulatedSource
from tests.unit.simulator.conftest import Start, until

tested: set[str] = set()


def fault(kind: str, **settings: Any) -> Fault:
    tested.add(kind)
    return Fault(kind, **settings)


async def test_abort(start: Start) -> None:
    async with start(fault("abort"), fault("out_of_memory")) as client:
        first, second, third = [await client.generate() for _ in range(3)]
        assert (first.status, first.body["meta_info"]["finish_reason"]) == (200, {"type": "abort", "message": "Aborted"})
        assert second.body["meta_info"]["finish_reason"]["message"].startswith("Out of memory")
        assert third.body["meta_info"]["finish_reason"]["type"] in ("stop", "length")


async def test_error_body(start: Start) -> None:
    async with start(fault("error_body")) as client:
        reply = await client.generate()
        assert (reply.status, set(reply.body)) == (200, {"error"})


async def test_finish_reasons_of_older_builds(start: Start) -> None:
    async with start(fault("null_finish"), fault("plain_finish")) as client:
        assert (await client.generate()).body["meta_info"]["finish_reason"] is None
        assert (await client.generate()).body["meta_info"]["finish_reason"] in ("stop", "length")


async def test_layout_of_older_builds(start: Start) -> None:
    async with start(fault("old_layout")) as client:
        old, new = await client.generate(), await client.generate()
        assert "output_ids" not in old.body
        assert old.body["meta_info"]["output_ids"] == new.body["output_ids"]


async def test_surplus_wrong_and_foreign_ids(start: Start) -> None:
    async with start(fault("prompt_tail", value=2), fault("wrong_count"), fault("foreign_id")) as client:
        tail, count, foreign, plain = [await client.generate(7, 8, 9) for _ in range(4)]
        ids = plain.body["output_ids"]
        assert tail.body["output_ids"] == [8, 9, *ids]
        assert tail.body["meta_info"]["completion_tokens"] == len(ids)
        assert count.body["meta_info"]["completion_tokens"] == len(ids) + 1
        assert foreign.body["output_ids"][1:] == ids[1:]
        assert foreign.body["output_ids"][0] >= client.server.profile.vocab_size


async def test_status(start: Start) -> None:
    async with start(fault("status"), fault("status", value=429, after=1)) as client:
        assert [(await client.generate()).status for _ in range(3)] == [500, 429, 200]


async def test_reset_and_cut(start: Start) -> None:
    async with start(fault("reset"), fault("cut")) as client:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await client.generate()
        with pytest.raises(aiohttp.ClientPayloadError):
            await client.generate()
        assert (await client.generate()).status == 200


async def test_hang_is_for_one_request(start: Start) -> None:
    async with start(fault("hang")) as client:
        hanging = asyncio.create_task(client.generate())
        await until(lambda: client.server.seen.requests)
        assert (await client.generate()).status == 200
        assert not hanging.done()
        hanging.cancel()


@pytest.mark.parametrize(("kind", "factor"), [("slow", 4), ("rate_collapse", 100)])
async def test_slowness_has_a_factor_and_an_end(start: Start, kind: str, factor: float) -> None:
    async with start(fault(kind, at_s=1.0, for_s=10.0)) as client:
        engine = client.server.driver.engine
        assert engine.slowdown == 1
        await until(lambda: client.server.driver.now() >= 1.0)
        client.server.driver.look()
        assert engine.slowdown == factor
        ends_s = client.server.driver.now() + 10.0  # at the latest: it began when it was first noticed
        await until(lambda: client.server.driver.now() >= ends_s)
        client.server.driver.look()
        assert engine.slowdown == 1


@pytest.mark.parametrize(("kind", "health"), [("silent", 200), ("scheduler_dead", 503)])
async def test_http_lives_and_nothing_is_generated(start: Start, kind: str, health: int) -> None:
    async with start(fault(kind, after=1)) as client:
        stuck = asyncio.create_task(client.generate())
        await until(lambda: client.server.seen.requests)
        assert (await client.get("/health")).status == health
        assert (await client.get("/model_info")).status == 200
        before = client.server.driver.totals().decoded_tokens
        await asyncio.sleep(0.1)  # twenty virtual seconds
        client.server.driver.look()
        assert client.server.driver.totals().decoded_tokens == before
        assert not stuck.done()
        client.server.clear_faults()
        assert (await stuck).status == 200


async def test_a_wedged_server_is_restarted_once_for_all_who_report_it(start: Start) -> None:
    async with start(fault("silent", after=1)) as client:
        source = SimulatedSource(client.server)
        first = await source.endpoint()
        stuck = asyncio.create_task(client.generate())
        await until(lambda: client.server.driver.in_flight)
        await asyncio.gather(*[source.report_wedged(first.incarnation, "no tokens") for _ in range(3)])
        with pytest.raises(aiohttp.ClientError):
            await stuck
        second = await source.endpoint(newer_than=first.incarnation)
        assert (second.incarnation, second.base_url) == (first.incarnation + 1, first.base_url)
        assert (await client.generate()).status == 200
        await source.report_wedged(first.incarnation, "late")
        assert (await source.endpoint()).incarnation == second.incarnation


async def test_crash_resets_all_and_comes_back_on_its_port(start: Start) -> None:
    async with start(fault("crash", after=3, value=2), speedup=20.0) as client:
        replies = await asyncio.gather(
            *[client.generate(5, n, ignore_eos=True, max_new_tokens=1_500) for n in range(3)], return_exceptions=True
        )
        assert all(isinstance(reply, aiohttp.ClientError) for reply in replies)
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.generate()
        await SimulatedSource(client.server).endpoint(newer_than=1)
        assert (await client.generate()).status == 200
        assert client.server.driver.totals().finished == 1


async def test_a_crash_for_good_is_told(start: Start) -> None:
    async with start(fault("crash", value=-1)) as client:
        with pytest.raises(ServerGone, match="stays dead"):
            await SimulatedSource(client.server).endpoint(newer_than=1)
    async with start() as client:
        with pytest.raises(ServerGone, match="not ready within"):
            await SimulatedSource(client.server).endpoint(newer_than=1, timeout_s=0.05)


async def test_another_model_behind_the_port(start: Start) -> None:
    async with start(fault("other_model", after=1, for_s=5.0)) as client:
        assert (await client.get("/model_info")).body["model_path"] == "simulated/model"
        await client.generate()
        assert (await client.get("/model_info")).body["model_path"] == "other/model"
        assert (await client.get("/server_info")).body["served_model_name"] == "other/model"
        client.server.clear_faults()
        assert (await client.get("/model_info")).body["model_path"] == "simulated/model"


async def test_queue_full(start: Start) -> None:
    async with start(fault("queue_full")) as client:
        assert (await client.generate()).status == 503
        client.server.clear_faults()
        assert (await client.generate()).status == 200


async def test_idle_connections_are_closed(start: Start) -> None:
    async with start(fault("keep_alive", value=0.05)) as client:
        reader, writer = await asyncio.open_connection(client.server.host, client.server.port)
        for _ in range(2):  # a connection in use is kept
            writer.write(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200 OK" in await reader.readline()
            while await reader.readline() != b"\r\n":
                pass
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        await writer.wait_closed()


async def test_faults_can_be_asked_for_while_it_runs(start: Start) -> None:
    async with start() as client:
        assert (await client.post("/simulator/faults", [{"kind": "status", "value": 502}])).status == 200
        assert (await client.generate()).status == 502
        await client.post("/simulator/faults", {"kind": "queue_full"})
        assert (await client.generate()).status == 503
        async with client.session.delete(client.server.base_url + "/simulator/faults") as response:
            assert response.status == 200
        assert (await client.generate()).status == 200
        refused = await client.post("/simulator/faults", {"kind": "flood"})
        assert refused.status == 400
        assert "known: abort" in refused.body["error"]
        state = (await client.get("/simulator/state")).body
        assert (state["requests"], state["answered"], state["outstanding"]) == (3, 1, 0)


def test_every_fault_is_tested_above() -> None:
    assert tested == REQUEST_FAULTS.keys() | STATE_FAULTS.keys()
