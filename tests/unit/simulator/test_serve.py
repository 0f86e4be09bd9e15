"""The server as a process of its own: started, drained by SIGTERM, killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from draftmill.simulator.cli import main
from draftmill.simulator.faults import REQUEST_FAULTS, STATE_FAULTS

INCLUDE = Path(__file__).parents[3] / "include"


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        *["-m", "draftmill.simulator", "serve", "--port", "0", *arguments],
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(INCLUDE), "SIMULATED_KEY": "key"},
    )
    assert running.stdout is not None
    try:
        base_url = json.loads(await running.stdout.readline())["base_url"]
        assert await running.stdout.readline() == b"The server is fired up and ready to roll!\n"
        yield running, base_url
    finally:
        if running.returncode is None:
            running.kill()
        await running.communicate()


async def test_sigterm_drains_and_ends_with_zero() -> None:
    body = {"input_ids": [5], "sampling_params": {"max_new_tokens": 50, "ignore_eos": True}}
    async with process("--speedup", "5") as (running, base_url), aiohttp.ClientSession() as session:
        answer = asyncio.create_task(session.post(f"{base_url}/generate", json=body))
        loads: dict = {}
        while not loads.get("num_running_reqs"):
            async with session.get(f"{base_url}/v1/loads") as response:
                loads = (await response.json())["loads"][0]
        running.send_signal(signal.SIGTERM)
        response = await answer
        assert (await response.json())["meta_info"]["completion_tokens"] == 50
        assert await running.wait() == 0


async def test_options_reach_the_server() -> None:
    arguments = [
        "--host-profile",
        "h200",
        "--kv-tokens",
        "5000",
        "--vocab-size",
        "300",
        "--model-path",
        "tiny",
        "--api-key-env",
        "SIMULATED_KEY",
    ]
    headers = {"Authorization": "Bearer key"}
    async with process(*arguments, "--fault", "status:value=502") as (_, base_url), aiohttp.ClientSession(headers=headers) as session:
        async with session.get(f"{base_url}/server_info") as response:
            info = await response.json()
        assert (info["model_path"], info["max_total_num_tokens"]) == ("tiny", 5000)
        async with session.post(f"{base_url}/generate", json={"input_ids": [299], "sampling_params": {"max_new_tokens": 1}}) as response:
            assert response.status == 502


async def test_a_killed_process_resets_its_connections() -> None:
    async with process() as (running, base_url), aiohttp.ClientSession() as session:
        answer = asyncio.create_task(session.post(f"{base_url}/generate", json={"input_ids": [5]}))
        while not (await (await session.get(f"{base_url}/simulator/state")).json())["outstanding"]:
            pass
        running.kill()
        with pytest.raises(aiohttp.ClientError):
            await answer


def test_help_lists_every_fault(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    text = capsys.readouterr().out
    assert all(f"  {kind} " in text for kind in REQUEST_FAULTS | STATE_FAULTS)


def test_a_wrong_profile_or_fault_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--host-profile", "b200"]) == 65
    assert main(["serve", "--fault", "flood"]) == 65
    text = capsys.readouterr().err
    assert "'b200' is not a simulated host; known: rtx6000-bf16" in text
    assert "'flood' is unknown" in text
