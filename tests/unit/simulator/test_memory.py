"""aiohttp's own client and server over connections in memory, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from draftmill.simulator import virtual
from draftmill.simulator.faults import Fault
from draftmill.simulator.server import SimulatedServer
from draftmill.simulator.workload import LengthLaw, Workload
from tests.unit.simulator.conftest import PROFILE


def server(*faults: Fault) -> SimulatedServer:
    return SimulatedServer(PROFILE, 1, faults=faults, workload=Workload(default=LengthLaw(40, 1_000), last_id=1_000), in_memory=True)


async def generate(session: aiohttp.ClientSession, base_url: str, number: int) -> Any:
    body = {"input_ids": [5, number], "rid": str(number), "sampling_params": {"max_new_tokens": 500, "ignore_eos": True}}
    async with session.post(f"{base_url}/generate", json=body) as response:
        return await response.json()


def test_time_is_that_of_the_engine() -> None:
    async def main() -> tuple[list[Any], float]:
        async with server() as host, aiohttp.ClientSession(connector=host.connector()) as session:
            replies = await asyncio.gather(*[generate(session, host.base_url, number) for number in range(4)])
            return replies, host.driver.now()

    replies, now = virtual.run(main())
    assert [len(reply["output_ids"]) for reply in replies] == [500] * 4
    assert now == pytest.approx(500 * PROFILE.step_s(4), rel=0.01)
    assert virtual.run(main()) == (replies, now)  # to the last bit


def test_crashes_reset_connections_and_refuse_new_ones() -> None:
    async def main() -> None:
        async with server(Fault("crash", at_s=1.0, value=10)) as host, aiohttp.ClientSession(connector=host.connector()) as session:
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await generate(session, host.base_url, 1)
            with pytest.raises(aiohttp.ClientConnectorError):
                await generate(session, host.base_url, 1)
            await asyncio.sleep(11)
            assert len((await generate(session, host.base_url, 1))["output_ids"]) == 500

    virtual.run(main())
