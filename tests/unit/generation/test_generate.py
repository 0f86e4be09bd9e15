"""The whole step against a simulated server on a real port."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.generation.rig import Rig, make_prompts, make_server


async def test_a_budget_is_reached_and_a_second_run_sends_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path, make_prompts(1_200), budget_tokens=20_000)
    async with make_server() as server:
        result = await rig.generate(server)
        assert result.outcome == "budget_reached"
        assert abs(result.completion_tokens - 20_000) <= 200
        rows = rig.check(server)
        assert len(rows) == result.responses == result.new_responses
        assert sum(row.completion_tokens for row in rows) == result.completion_tokens
        sent = server.seen.requests
        assert sent == len(rows)
        again = rig.again(budget_tokens=40_000)
        more = await again.generate(server)
        assert more.resumed_tokens == result.completion_tokens
        assert abs(more.completion_tokens - 40_000) <= 400
        again.check(server)
        assert server.seen.requests == more.responses


async def test_exhausted_prompts_say_so(tmp_path: Path) -> None:
    rig = Rig(tmp_path, make_prompts(50), budget_tokens=1_000_000)
    async with make_server() as server:
        result = await rig.generate(server)
        assert (result.outcome, result.responses) == ("exhausted", 50)
        rig.check(server)


@pytest.mark.parametrize("ceiling", [1, 7])
async def test_never_more_than_the_ceiling_is_out(tmp_path: Path, ceiling: int) -> None:
    rig = Rig(tmp_path, make_prompts(60), budget_tokens=1_000_000, in_flight=ceiling)
    async with make_server() as server:
        await rig.generate(server)
        assert server.seen.peak_outstanding == ceiling
