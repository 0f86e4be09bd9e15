from __future__ import annotations

import asyncio
import time

import pytest

from draftmill.simulator import virtual


def test_a_day_of_sleep_takes_no_time() -> None:
    async def main() -> tuple[float, list[str]]:
        order = []

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            order.append(name)

        await asyncio.gather(sleeper("late", 86_400), sleeper("early", 0.25), sleeper("middle", 3_600))
        return asyncio.get_running_loop().time(), order

    began = time.monotonic()
    now, order = virtual.run(main())
    assert time.monotonic() - began < 5
    assert now == pytest.approx(86_400)
    assert order == ["early", "middle", "late"]


def test_threads_are_called_in_place() -> None:
    async def main() -> int:
        assert await asyncio.to_thread(pow, 2, 10) == 1_024
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return 7

    assert virtual.run(main()) == 7


def test_a_deadlock_is_told_and_not_waited_for() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(virtual.Stuck, match="wait for ever"):
        virtual.run(main())


def test_what_is_left_over_is_cancelled() -> None:
    ended = []

    async def background() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            ended.append(True)

    async def main() -> None:
        task = asyncio.create_task(background())
        await asyncio.sleep(1)
        assert not task.done()

    virtual.run(main())
    assert ended == [True]
