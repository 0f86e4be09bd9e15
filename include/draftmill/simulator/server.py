"""The simulated server on a real port, for tests: `async with SimulatedServer(HOSTS["h200"], seed=1) as server: server.base_url`."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import socket
from collections.abc import Iterable
from types import TracebackType

from aiohttp import web

from draftmill.serving.endpoint import Endpoint, ServerGone
from draftmill.simulator.app import build_app
from draftmill.simulator.driver import Driver
from draftmill.simulator.faults import Fault, Schedule
from draftmill.simulator.memory import MemoryConnector
from draftmill.simulator.profile import HostProfile
from draftmill.simulator.protocol import VERSION
from draftmill.simulator.state import Seen, ServerState
from draftmill.simulator.workload import Workload

_POLL_S = 0.02


class SimulatedServer:
    """A server that can crash and come back on the same port.

    seed: of the answers. speedup: virtual seconds a real second. workload: what is answered (its seed is set to `seed`).
    restart_s: virtual seconds until a crashed server is back; None leaves it dead. start_s: virtual seconds in which it listens and
    is not ready yet. port 0 takes a free one. in_memory: it listens nowhere, and is reached through `connector` alone.
    """

    def __init__(
        self,
        profile: HostProfile,
        seed: int = 0,
        speedup: float = 1.0,
        faults: Iterable[Fault] = (),
        *,
        workload: Workload | None = None,
        model_path: str = "simulated/model",
        api_key: str | None = None,
        max_queued: int | None = None,
        restart_s: float | None = 5.0,
        start_s: float = 0.0,
        host: str = "127.0.0.1",
        port: int = 0,
        in_memory: bool = False,
    ) -> None:
        self.schedule = Schedule(faults)
        self.driver = Driver(profile, self.schedule, speedup, self._on_fault)
        answers = dataclasses.replace(workload or Workload(), seed=seed)
        self.state = ServerState(self.driver, answers, model_path=model_path, api_key=api_key, max_queued=max_queued)
        self.incarnation = 0
        self.host = host
        self.port = port
        self._in_memory = in_memory
        self._restart_s = restart_s
        self._start_s = start_s
        self._runner: web.AppRunner | None = None
        self._crashing: asyncio.Task[None] | None = None
        self.given_up = False

    @property
    def base_url(self) -> str:
        """`http://HOST:PORT`."""
        return f"http://{self.host}:{self.port}"

    @property
    def seen(self) -> Seen:
        """What came in so far, over all incarnations."""
        return self.state.seen

    @property
    def profile(self) -> HostProfile:
        """The host that is simulated."""
        return self.driver.profile

    def endpoint(self) -> Endpoint:
        """The server as a lease would describe it."""
        profile = self.profile
        text = f"{VERSION}/{self.state.model_path}/{profile}"
        return Endpoint(
            base_url=self.base_url,
            api_key=self.state.api_key,
            model_path=self.state.model_path,
            served_model_name=self.state.model_path,
            version=VERSION,
            fingerprint=hashlib.sha256(text.encode()).hexdigest()[:16],
            incarnation=self.incarnation,
            kv_capacity_tokens=profile.kv_tokens,
            context_length=profile.context_length,
            max_req_input_len=self.state.server_info()["max_req_input_len"],
            vocab_size=profile.vocab_size,
        )

    def connector(self) -> MemoryConnector:
        """An aiohttp connector whose connections lead to this server within the process."""
        return MemoryConnector(lambda: self._runner.server() if self._runner and self._runner.server else None)

    async def __aenter__(self) -> SimulatedServer:
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()  # a crash asked for while it boots comes after
        self.driver.start()
        await self._boot()
        return self

    async def __aexit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        if self._crashing is not None:
            self._crashing.cancel()
            await asyncio.gather(self._crashing, return_exceptions=True)
        if not self.state.draining:
            self.driver.kill()
        self.driver.stop()
        await self._unbind()

    def add_faults(self, *faults: Fault) -> None:
        """Ask for faults now."""
        self.schedule.add(faults)
        self.driver.look()

    def clear_faults(self) -> None:
        """Forget all faults; state that they changed is put back."""
        self.driver.clear_faults()

    def crash(self, restart_s: float | None) -> None:
        """Die now: every connection is reset, the port closed. Back after `restart_s` virtual seconds, or never."""
        if self._crashing is None or self._crashing.done():
            self._crashing = self._loop.create_task(self._crash(restart_s))

    def restart(self) -> None:
        """What a supervisor does with a wedged server: kill it and bring it back. May be called from any thread."""
        self._loop.call_soon_threadsafe(self.crash, self._restart_s if self._restart_s is not None else 0.0)

    async def drain(self) -> None:
        """SIGTERM: /health turns 503; what is in flight and what still comes in is finished; returns when nothing is left."""
        self.state.draining = True
        await self.driver.idle.wait()

    async def _boot(self) -> None:
        async with self._turn:
            await self._listen()

    async def _listen(self) -> None:
        self.state.starting = self._start_s > 0
        self._runner = web.AppRunner(
            build_app(self.state, lambda: self.crash(self._restart_s)), access_log=None, handler_cancellation=True, shutdown_timeout=5.0
        )
        await self._runner.setup()
        await self._bind(self._runner)
        if self.state.starting:
            await asyncio.sleep(self._start_s / self.driver.speedup)
            self.state.starting = False
        self.incarnation += 1
        self.state.up = True

    async def _bind(self, runner: web.AppRunner) -> None:
        if self._in_memory:
            return
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self.host, self.port))
        self.port = listener.getsockname()[1]
        await web.SockSite(runner, listener, backlog=4096).start()

    async def _unbind(self) -> None:
        runner, self._runner = self._runner, None
        self.state.up = False
        if runner is None:
            return
        if runner.server is not None and not self.state.draining:  # drained: what is being sent goes out first
            for connection in list(runner.server.connections):
                if connection.transport is not None:
                    connection.transport.abort()
        await runner.cleanup()

    async def _crash(self, restart_s: float | None) -> None:
        async with self._turn:
            self.state.up = False
            self.driver.kill()
            await self._unbind()
        if restart_s is None:
            self.given_up = True
            return
        await asyncio.sleep(restart_s / self.driver.speedup)
        await self._boot()

    def _on_fault(self, fault: Fault, begins: bool) -> None:
        if fault.kind == "crash" and begins:
            self.crash(None if fault.number < 0 else fault.number)
        elif fault.kind == "queue_full":
            self.state.queue_full = begins
        elif fault.kind == "other_model":
            self.state.other_model = str(fault.setting) if begins else None
        elif fault.kind == "keep_alive":
            self.state.keep_alive_s = fault.number if begins else None


class SimulatedSource:
    """A ServerSource over a simulated server. It waits by looking again, so it may be used on another loop than the server's."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server
        self._reported: set[int] = set()

    async def endpoint(self, newer_than: int = -1, timeout_s: float | None = None) -> Endpoint:
        """As in ServerSource: wait for a ready server above `newer_than`."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while not (self._server.state.up and self._server.incarnation > newer_than):
            if self._server.given_up:
                raise ServerGone("the simulated server died and stays dead; start it again")
            if deadline is not None and loop.time() >= deadline:
                raise ServerGone(f"the simulated server was not ready within {timeout_s:g} s; try again")
            await asyncio.sleep(_POLL_S)
        return self._server.endpoint()

    async def report_wedged(self, incarnation: int, why: str) -> None:
        """As in ServerSource: restart it, once for each incarnation."""
        if incarnation == self._server.incarnation and incarnation not in self._reported:
            self._reported.add(incarnation)
            self._server.restart()
