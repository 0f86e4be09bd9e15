from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from draftmill.simulator.faults import Fault
from draftmill.simulator.profile import HostProfile
from draftmill.simulator.server import SimulatedServer
from draftmill.simulator.workload import LengthLaw, Workload

PROFILE = HostProfile("test", base_s=0.02, per_request_s=0.0005, kv_tokens=4_000, context_length=2_000, vocab_size=1_024)


@dataclass
class Reply:
    status: int
    body: Any


class Client:
    """A plain client of the simulated server."""

    def __init__(self, server: SimulatedServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session

    async def get(self, path: str) -> Reply:
        async with self.session.get(self.server.base_url + path) as response:
            return Reply(response.status, await self._body(response))

    async def post(self, path: str, body: Any) -> Reply:
        async with self.session.post(self.server.base_url + path, json=body) as response:
            return Reply(response.status, await self._body(response))

    async def generate(self, *ids: int, rid: str | None = None, **sampling: Any) -> Reply:
        body = {"input_ids": list(ids) or [5, 6, 7], "sampling_params": {"max_new_tokens": 64} | sampling}
        return await self.post("/generate", body | ({"rid": rid} if rid else {}))

    @staticmethod
    async def _body(response: aiohttp.ClientResponse) -> Any:
        return await response.json() if response.content_type == "application/json" else await response.text()


async def until(condition: Callable[[], object]) -> None:
    """Wait for something inside the server, which tells nobody, to be so."""
    while not condition():  # noqa: ASYNC110 - a server has no event for each of its conditions
        await asyncio.sleep(0.001)


Start = Callable[..., Any]


@pytest.fixture
def start() -> Start:
    """`async with start(faults..., option=...) as client`: a fast server of short answers, and a client for it."""

    @asynccontextmanager
    async def started(*faults: Fault, profile: HostProfile = PROFILE, mean: float = 40, **options: Any) -> AsyncIterator[Client]:
        settings: dict[str, Any] = {"speedup": 200.0, "workload": Workload(default=LengthLaw(mean, 1_000), last_id=1_000)} | options
        async with SimulatedServer(profile, 1, faults=faults, **settings) as server, aiohttp.ClientSession() as session:
            yield Client(server, session)

    return started
