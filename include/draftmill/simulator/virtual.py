"""An asyncio loop whose clock is virtual: where nothing is ready, it jumps to the next timer instead of waiting for it.

The program that runs on it is the real one, awaits and timers and all; a day of it costs what its events cost. Whatever it asks of
a thread (`asyncio.to_thread`, `run_in_executor`) is done at once, in place, so that a run is repeatable.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

Result = TypeVar("Result")


class Stuck(RuntimeError):  # noqa: N818 - what happened, to be read as such
    """The program waits for something that will never come: nothing is ready, no timer is set."""


class _JumpingSelector(selectors.BaseSelector):
    """Polls the descriptors that are registered, and lets `jump` pass the time that it was asked to wait."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        self._real = selectors.DefaultSelector()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = self._real.select(0)
        if events or timeout == 0:
            return events
        if timeout is None:
            raise Stuck("nothing is ready and no timer is set: the program would wait for ever")
        self._jump(timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """The loop. `time()` starts at 0 and moves only by jumps."""

    def __init__(self) -> None:
        self._virtual_now = 0.0
        super().__init__(_JumpingSelector(self._jump))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual_now

    def _jump(self, seconds: float) -> None:
        self._virtual_now += seconds

    def run_in_executor(  # type: ignore[override]  # the base class spells its generics in a way that no override can repeat
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call `func` now and here; the future is done when this returns."""
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - carried to whoever awaits
            future.set_exception(error)
        return future


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """`asyncio.run` in virtual time. Tasks that are left over are cancelled, and asynchronous generators closed."""
    loop = VirtualClockLoop()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()
