"""The HTTP side: SGLang's native endpoints, and two of our own below /simulator to look inside and to ask for faults."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import orjson
from aiohttp import web

from draftmill.errors import PermanentError
from draftmill.prompts.prompt import input_hash
from draftmill.simulator import protocol
from draftmill.simulator.driver import Gone
from draftmill.simulator.engine import Sequence
from draftmill.simulator.faults import Fault
from draftmill.simulator.protocol import Deadly, GenerateRequest, Refused
from draftmill.simulator.state import ServerState

if TYPE_CHECKING:
    from draftmill.simulator.workload import Answer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

OPEN_PATHS = frozenset({"/health", "/ready", "/ping", "/metrics"})
STREAM_EVERY_S = 0.2


def build_app(state: ServerState, die: Callable[[], None]) -> web.Application:
    """The application over `state`. `die` is called when a request kills the server."""
    app = web.Application(middlewares=[_Connections(state).middleware, _authorise(state)], client_max_size=256 * 1024 * 1024)
    routes = Routes(state, die)
    app.router.add_get("/health", routes.health)
    app.router.add_get("/health_generate", routes.health)
    app.router.add_get("/ready", routes.ready)
    app.router.add_get("/ping", routes.ready)
    for path in ("/model_info", "/get_model_info"):
        app.router.add_get(path, routes.model_info)
    for path in ("/server_info", "/get_server_info"):
        app.router.add_get(path, routes.server_info)
    app.router.add_get("/v1/loads", routes.loads)
    app.router.add_get("/metrics", routes.metrics)
    app.router.add_post("/generate", routes.generate)
    app.router.add_post("/abort_request", routes.abort)
    app.router.add_post("/flush_cache", routes.flush)
    app.router.add_get("/simulator/state", routes.state_of_simulator)
    app.router.add_post("/simulator/faults", routes.add_faults)
    app.router.add_delete("/simulator/faults", routes.clear_faults)
    return app


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


def _authorise(state: ServerState) -> Any:
    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        key = state.api_key
        if key and request.path not in OPEN_PATHS and not request.path.startswith("/simulator/"):
            given = request.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {key}".encode()):
                return _json({"error": "Unauthorized"}, 401)
        return await handler(request)

    return middleware


class _Connections:
    """Closes connections that are idle for `keep_alive_s`, where that fault is at work."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._uses: WeakKeyDictionary[asyncio.Transport, int] = WeakKeyDictionary()

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            return await handler(request)
        use = self._uses[transport] = self._uses.get(transport, 0) + 1
        try:
            return await handler(request)
        finally:
            if self._state.keep_alive_s is not None:
                asyncio.get_running_loop().call_later(self._state.keep_alive_s, self._close_if_idle, transport, use)

    def _close_if_idle(self, transport: asyncio.Transport, use: int) -> None:
        if self._uses.get(transport) == use:
            transport.close()


class Routes:
    """The handlers."""

    def __init__(self, state: ServerState, die: Callable[[], None]) -> None:
        self._state = state
        self._die = die

    async def health(self, _request: web.Request) -> web.Response:
        """Like the real one, it takes a second of the server's time: a one-token generation."""
        if self._state.healthy:
            await asyncio.sleep(1.0 / self._state.driver.speedup)
        return web.Response(status=200 if self._state.healthy else 503)

    async def ready(self, _request: web.Request) -> web.Response:
        return web.Response(status=503 if self._state.starting else 200)

    async def model_info(self, _request: web.Request) -> web.Response:
        return _json(self._state.model_info())

    async def server_info(self, _request: web.Request) -> web.Response:
        return _json(self._state.server_info())

    async def loads(self, _request: web.Request) -> web.Response:
        self._state.driver.look()
        return _json(self._state.loads())

    async def metrics(self, _request: web.Request) -> web.Response:
        self._state.driver.look()
        return web.Response(text=self._state.metrics())

    async def abort(self, request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        self._state.seen.aborts_asked += 1
        if body.get("abort_all"):
            self._state.driver.abort_all()
        elif body.get("rid"):
            self._state.driver.abort(body["rid"])
        return web.Response()

    async def flush(self, _request: web.Request) -> web.Response:
        busy = self._state.driver.in_flight > 0
        return web.Response(text="Flush cache failed.\n" if busy else "Cache flushed.\n", status=400 if busy else 200)

    async def state_of_simulator(self, _request: web.Request) -> web.Response:
        driver, seen = self._state.driver, self._state.seen
        driver.look()
        totals = asdict(driver.totals())
        numbers = {
            "now_s": driver.now(),
            "requests": seen.requests,
            "outstanding": seen.outstanding,
            "peak_outstanding": seen.peak_outstanding,
            "answered": sum(seen.answered.values()),
            "answered_prompts": len(seen.answered),
        }
        return _json(totals | numbers)

    async def add_faults(self, request: web.Request) -> web.Response:
        try:
            wanted = orjson.loads(await request.read())
            self._state.driver.schedule.add([Fault.from_json(entry) for entry in (wanted if isinstance(wanted, list) else [wanted])])
        except (PermanentError, ValueError) as error:
            return _json({"error": str(error)}, 400)
        self._state.driver.look()
        return web.Response()

    async def clear_faults(self, _request: web.Request) -> web.Response:
        self._state.driver.clear_faults()
        return web.Response()

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """POST /generate, with the fault that the schedule has for this request."""
        seen = self._state.seen
        seen.requests += 1
        seen.outstanding += 1
        seen.peak_outstanding = max(seen.peak_outstanding, seen.outstanding)
        try:
            return await self._generate(request)
        except Refused as refused:
            return _json(refused.body, 400)
        except Deadly:
            self._die()
            return _reset(request)
        except Gone:
            return _reset(request)
        finally:
            seen.outstanding -= 1

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        state = self._state
        try:
            body = orjson.loads(await request.read())
        except orjson.JSONDecodeError:
            raise Refused("the body is not JSON") from None
        wanted = protocol.parse_generate(body, state.driver.profile)
        if state.driver.knows(wanted.rid):
            raise Refused({"message": f"Duplicate request ID detected: {wanted.rid}"})
        fault = state.driver.schedule.for_request(state.driver.now())
        state.driver.look()
        early = self._early(request, fault)
        if early is not None:
            return early
        if fault is not None and fault.kind == "hang":
            await asyncio.Event().wait()
        answer = state.workload.answer(wanted.input_ids, wanted.max_new_tokens, wanted.ignore_eos)
        run = asyncio.ensure_future(state.driver.run(Sequence(wanted.rid, len(wanted.input_ids), answer.tokens)))
        try:
            if wanted.stream:
                return await self._stream(request, wanted, answer, run)
            result = await self._result(wanted, answer, run, fault)
        finally:
            run.cancel()
        if fault is not None and fault.kind == "reset":
            return _reset(request)
        if fault is not None and fault.kind == "cut":
            return await _cut(request, orjson.dumps(result))
        return _json(result)

    def _early(self, request: web.Request, fault: Fault | None) -> web.Response | None:
        """What is answered at once, before anything is generated."""
        if self._state.refuses:
            return _json({"object": "error", "message": "The request queue is full.", "type": "503", "param": None, "code": 503}, 503)
        if fault is None:
            return None
        if fault.kind == "status":
            return _json({"object": "error", "message": "simulated", "code": int(fault.number)}, int(fault.number))
        if fault.kind == "error_body":
            return _json({"error": {"message": "simulated error inside HTTP 200"}})
        return None

    async def _result(self, wanted: GenerateRequest, answer: Answer, run: asyncio.Future[Any], fault: Fault | None) -> dict[str, Any]:
        began = self._state.driver.now()
        ended = await run
        ids = self._state.workload.output_ids(wanted.input_ids, answer)
        if ended.ending == "finished":
            self._state.seen.answered[input_hash(wanted.input_ids)] += 1
            finish = protocol.finish_reason(answer.finish, ids)
        else:
            ids = ids[: ended.tokens]
            finish = protocol.abort_reason(protocol.OUT_OF_MEMORY if ended.ending == "out_of_memory" else "Aborted")
        return protocol.answer_body(wanted, ids, finish, self._state.driver.now() - began, fault)

    async def _stream(self, request: web.Request, wanted: GenerateRequest, answer: Answer, run: asyncio.Future[Any]) -> web.StreamResponse:
        """Server-sent events; each carries all ids so far, as SGLang's do."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        ids = self._state.workload.output_ids(wanted.input_ids, answer)
        while not run.done():
            await asyncio.wait([run], timeout=STREAM_EVERY_S)
            self._state.driver.look()
            so_far = ids[: self._state.driver.engine.generated(wanted.rid)]
            if so_far and not run.done():
                part = protocol.answer_body(wanted, so_far, {}, 0.0)
                part["meta_info"]["finish_reason"] = None
                await response.write(b"data: " + orjson.dumps(part) + b"\n\n")
        last = await self._result(wanted, answer, run, None)
        await response.write(b"data: " + orjson.dumps(last) + b"\n\ndata: [DONE]\n\n")
        await response.write_eof()
        return response


def _reset(request: web.Request) -> web.Response:
    """Drop the connection without a word. The response that is returned never leaves."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


async def _cut(request: web.Request, body: bytes) -> web.StreamResponse:
    """Announce the whole body, send half of it, close."""
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(body))})
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response
