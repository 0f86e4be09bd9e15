"""Connections that never leave the process: aiohttp's own client and server, byte for byte, without a socket between them.

So the product's HTTP client runs unchanged on a loop with a virtual clock, where real sockets would not know what time it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import BaseConnector
from aiohttp.tracing import Trace


class _Transport(asyncio.Transport):
    """One end of a connection: what is written here arrives at the other end's protocol in the loop's next turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": ("127.0.0.1", 0), "sockname": ("127.0.0.1", 0)})
        self._loop = loop
        self._protocol = protocol
        self._other: _Transport | None = None
        self._closing = False

    def join(self, other: _Transport) -> None:
        """Connect the two ends."""
        self._other, other._other = other, self

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if not self._closing and self._other is not None and data:
            self._loop.call_soon(self._other.receive, bytes(data))

    def receive(self, data: bytes) -> None:
        """Hand on what the other end wrote."""
        if not self._closing:
            self._protocol.data_received(data)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)
            if self._other is not None:
                self._loop.call_soon(self._other.close)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._closing

    def pause_reading(self) -> None:
        """Nothing to pause: what was written is in memory already."""

    def resume_reading(self) -> None:
        """See pause_reading."""

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""


Factory = Callable[[], asyncio.Protocol | None]


class MemoryConnector(BaseConnector):
    """An aiohttp connector whose every connection leads to what `listening` makes; refused where that returns None."""

    def __init__(self, listening: Factory) -> None:
        super().__init__(limit=0)
        self._listening = listening

    async def _create_connection(self, req: ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout) -> ResponseHandler:
        answering = self._listening()
        if answering is None:
            raise aiohttp.ClientConnectorError(req.connection_key, ConnectionRefusedError(111, "Connection refused"))
        asking = ResponseHandler(self._loop)
        here, there = _Transport(self._loop, asking), _Transport(self._loop, answering)
        here.join(there)
        answering.connection_made(there)
        asking.connection_made(here)
        return asking
