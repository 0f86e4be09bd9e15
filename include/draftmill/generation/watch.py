"""Watching the server while requests are out: its load, whether tokens move, whether it is still the model that was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from draftmill.generation.client import Client
from draftmill.generation.flights import Progress
from draftmill.generation.load import ServerLoad
from draftmill.generation.pace import Pace

LOOK_S = 2.0
FIRST_LOOK_S = 0.1
"""The first looks come sooner, and each waits twice as long as the one before it."""

LEAST_LOOK_S = 0.05
LOOKS_PER_ANSWER = 0.1
"""A look must not be older than this part of what a mean answer takes: small models answer in less than LOOK_S."""

SUSPECT_LOOK_S = 0.5
TOTALS_EVERY = 5
IDENTITY_EVERY = 15


class ServerLost(Exception):  # noqa: N818 - what happened
    """This server process is of no more use. wedged: it must be reported, because its supervisor cannot know."""

    def __init__(self, why: str, wedged: bool) -> None:
        super().__init__(why)
        self.wedged = wedged


class Watch:
    """Looks at the server every LOOK_S seconds.

    suspected: a connection failed, and nothing has been heard since; nothing new is sent until the server has said who it is.
    lost: why the server is of no more use, once it is known.
    """

    def __init__(self, client: Client, pace: Pace, progress: Progress, silent_s: float, outstanding: Callable[[], int]) -> None:
        self._client = client
        self._pace = pace
        self._progress = progress
        self._silent_s = silent_s
        self._outstanding = outstanding
        self._loop = asyncio.get_running_loop()
        self._moved_at = self._loop.time()
        self._before: ServerLoad | None = None
        self._before_at = 0.0
        self._looks = 0
        self._hurry = asyncio.Event()
        self.suspected = False
        self.lost: ServerLost | None = None

    def moved(self) -> None:
        """An answer came back, or there was nothing to wait for."""
        self._moved_at = self._loop.time()

    def suspect(self) -> None:
        """A connection failed: look now."""
        self.suspected = True
        self._hurry.set()

    async def identify(self) -> None:
        """Ask the server who it is; clears the suspicion where it is who it should be."""
        model = await self._client.model_path()
        wanted = self._client.endpoint.model_path
        if model is None:
            self.suspected = True
        elif model == wanted:
            self.suspected = False
        else:
            self.lost = ServerLost(f"the server behind {self._client.endpoint.base_url} serves {model}, not {wanted}", wedged=True)

    async def run(self) -> None:
        """Look until cancelled."""
        while self.lost is None:
            await self._look()
            self._hurry.clear()
            try:
                await asyncio.wait_for(self._hurry.wait(), SUSPECT_LOOK_S if self.suspected else self._patience())
            except asyncio.TimeoutError:
                continue
            await asyncio.sleep(0.05)  # lets a burst of failures be one look

    def _patience(self) -> float:
        starting = FIRST_LOOK_S * 2.0 ** min(self._looks, 10)
        return max(LEAST_LOOK_S, min(LOOK_S, starting, LOOKS_PER_ANSWER * self._pace.answer_seconds))

    async def _look(self) -> None:
        if self.suspected or self._looks % IDENTITY_EVERY == IDENTITY_EVERY - 1:
            await self.identify()
        load = None if self.suspected else await self._client.load(with_totals=self._looks % TOTALS_EVERY == 0)
        self._looks += 1
        now = self._loop.time()
        if load is not None:
            self._take(now, load)
        if self._outstanding() == 0 and not self.suspected:
            self.moved()
        silent = now - self._moved_at
        if silent > self._silent_s and self.lost is None:
            what = "does not answer" if self.suspected else "has generated nothing"
            self.lost = ServerLost(f"the server {what} for {silent:.0f} s with {self._outstanding()} requests out", wedged=True)

    def _take(self, now: float, load: ServerLoad) -> None:
        before = self._before
        if before is not None and _moves(before, load):
            self.moved()
        rate = self._rate(now, load)
        if rate is not None:
            self._progress.report(now, rate)
        self._pace.observe(now, load)
        self._before = load if before is None else load.merged(before)
        self._before_at = now

    @staticmethod
    def _rate(now: float, load: ServerLoad) -> float | None:
        """Tokens a second of one running request."""
        del now
        if load.tokens_per_s and load.running and load.running >= 1:
            return load.tokens_per_s / load.running
        return None


def _moves(before: ServerLoad, after: ServerLoad) -> bool:
    """Whether anything changed that changes only while tokens are generated."""
    names = ("generated", "used_tokens", "running")
    return any(None not in (old := getattr(before, name), new := getattr(after, name)) and old != new for name in names)
