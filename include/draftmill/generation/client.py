"""SGLang's native API over HTTP, as far as generation needs it.

Not streamed: a stream repeats all ids so far in every event, so an answer of n tokens costs about n^2 / 2 ids to receive; and what a
stream would tell, that tokens move, the server's own counters tell for all requests at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson

from draftmill.errors import PermanentError
from draftmill.generation.faults import RequestFault
from draftmill.generation.load import ServerLoad, from_loads, from_metrics
from draftmill.serving.endpoint import Endpoint

if TYPE_CHECKING:
    import aiohttp

_KEEP_ALIVE_S = 0.75
"""Idle connections are dropped before the server drops them (after 1 s in some set-ups, 5 s by default): a request that is sent just
as its connection is being closed is lost."""

_CONNECT_S = 15.0
_CONTROL_S = 10.0


class Client:
    """One server, many requests. Use as an async context manager."""

    def __init__(self, endpoint: Endpoint, connector: aiohttp.BaseConnector | None = None) -> None:
        """`connector` is for servers that are not reached by TCP; it is closed with the client."""
        self.endpoint = endpoint
        self._connector = connector
        self._loads_path: str | None = "/v1/loads"
        self._metrics = True

    async def __aenter__(self) -> Client:
        import aiohttp

        headers = {"Content-Type": "application/json"}
        if self.endpoint.api_key:
            headers["Authorization"] = f"Bearer {self.endpoint.api_key}"
        self._session = aiohttp.ClientSession(
            connector=self._connector or aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            headers=headers,
        )
        self._generate_url = f"{self.endpoint.base_url}/generate"
        self._control = aiohttp.ClientTimeout(total=_CONTROL_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def generate(self, body: bytes) -> bytes:
        """POST /generate; the body of the 200 that came back.

        Raises RequestFault for what may be tried again, and PermanentError where no request can succeed: a wrong key, no such path.
        """
        import aiohttp

        try:
            async with self._session.post(self._generate_url, data=body) as response:
                answer = await response.read()
                if response.status == 200:
                    return answer
                raise _refusal(response.status, answer, self._generate_url)
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            raise RequestFault("connection", f"{type(error).__name__}: {error}") from None

    async def abort(self, rid: str) -> None:
        """POST /abort_request: give up on a request, so that a new attempt does not double the load. A failure is nobody's loss."""
        import aiohttp

        try:
            async with self._session.post(
                f"{self.endpoint.base_url}/abort_request", data=orjson.dumps({"rid": rid}), timeout=self._control
            ) as response:
                await response.read()
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError):
            return

    async def load(self, with_totals: bool = True) -> ServerLoad | None:
        """What the server says about its load; None where it says nothing. `with_totals` also asks for its counters."""
        load = await self._loads()
        if self._metrics and (with_totals or load is None):
            text = await self._get("/metrics")
            metrics = from_metrics(text.decode(errors="replace")) if isinstance(text, bytes) else None
            self._metrics = text is None or isinstance(text, bytes)
            load = load.merged(metrics) if load and metrics else load or metrics
        return load

    async def _loads(self) -> ServerLoad | None:
        if self._loads_path is None:
            return None
        body = await self._get(self._loads_path)
        if isinstance(body, int):
            self._loads_path = "/get_load" if self._loads_path == "/v1/loads" else None
            return await self._loads()
        return from_loads(_json(body)) if body else None

    async def model_path(self) -> str | None:
        """The model behind the port, as it says itself; None where nothing answers."""
        for path in ("/model_info", "/get_model_info"):
            body = await self._get(path)
            if isinstance(body, bytes):
                info = _json(body)
                return info.get("model_path") if isinstance(info, dict) else None
            if body is None:
                return None
        return None

    async def _get(self, path: str) -> bytes | int | None:
        """The body of a 200, the status of anything else, None where nothing answered. PermanentError where the key is refused."""
        import aiohttp

        url = f"{self.endpoint.base_url}{path}"
        try:
            async with self._session.get(url, timeout=self._control) as response:
                body, status = await response.read(), response.status
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError):
            return None
        if status in (401, 403):
            raise _refusal(status, body, url)
        return body if status == 200 else status


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _refusal(status: int, body: bytes, url: str) -> Exception:
    """What a status other than 200 means."""
    message = _message(body)
    if status in (401, 403):
        return PermanentError(f"{url}: the server refuses the API key (HTTP {status}); check the key in the host's environment")
    if status in (404, 405):
        return PermanentError(f"{url}: HTTP {status}; this is not SGLang's native API, check the server profile")
    if status in (429, 503):
        return RequestFault("pushback", message)
    if status >= 500:
        return RequestFault("server_error", f"HTTP {status}: {message}")
    if "uplicate" in message:
        return RequestFault("duplicate_rid", message)
    if "longer than" in message or "exceeds" in message:
        return RequestFault("too_long", message)
    return RequestFault("refused", f"HTTP {status}: {message}")


def _message(body: bytes) -> str:
    """The server's own words: `{"error": {"message": ...}}`, `{"error": "..."}`, `{"message": ...}` or plain text."""
    value = _json(body)
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and value.get(name):
            value = value[name]
    text = value if isinstance(value, str) else body.decode(errors="replace")
    return " ".join(text.split())[:300]
