"""The whole step against a simulated server on a real port."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from draftmill.generation import step
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


async def test_a_budget_that_is_met_needs_no_server(tmp_path: Path) -> None:
    """The whole step, lease and all: nothing is started, nobody is asked, nothing is written."""
    rig = Rig(tmp_path, make_prompts(300), budget_tokens=5_000)
    async with make_server() as server:
        first = await rig.generate(server)
    before = rig.journal.read_bytes()
    again = rig.again()
    shutil.rmtree(again.ctx.workspace.server)
    result = step.run(again.ctx)
    assert (result["outcome"], result["new_responses"]) == ("budget_reached", 0)
    assert (result["responses"], result["completion_tokens"]) == (first.responses, first.completion_tokens)
    assert rig.journal.read_bytes() == before
    assert not again.ctx.workspace.server.exists()
    assert any("nothing to do: budget reached" in line for line in again.lines)


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
