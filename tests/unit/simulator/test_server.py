"""The protocol as facts about SGLang state it, over real sockets."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from draftmill.prompts.prompt import input_hash
from tests.unit.simulator.conftest import PROFILE, Start, until


async def test_generate(start: Start) -> None:
    async with start() as client:
        reply = await client.generate(5, 6, 7, rid="mine")
        meta = reply.body["meta_info"]
        assert reply.status == 200
        assert meta["id"] == "mine"
        assert meta["prompt_tokens"] == 3
        assert meta["completion_tokens"] == len(reply.body["output_ids"])
        assert meta["finish_reason"] in ({"type": "stop", "matched": 2}, {"type": "length", "length": 64})
        assert (await client.generate(5, 6, 7)).body["output_ids"] == reply.body["output_ids"]
        assert client.server.seen.answered == {input_hash([5, 6, 7]): 2}


async def test_max_new_tokens_defaults_to_128_and_cuts(start: Start) -> None:
    async with start(mean=500) as client:
        reply = await client.post("/generate", {"input_ids": [5], "sampling_params": {"ignore_eos": True}})
        assert reply.body["meta_info"]["finish_reason"] == {"type": "length", "length": 128}
        assert len(reply.body["output_ids"]) == 128


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"input_ids": [1] * 2_000}, "The input (2000 tokens) is longer than the model's context length (2000 tokens)."),
        ({"input_ids": [1] * 1_900, "sampling_params": {"max_new_tokens": 200}}, "Requested token count exceeds"),
        ({"input_ids": []}, "should be provided"),
        ({"input_ids": ["a"]}, "should be provided"),
    ],
)
async def test_refusals_carry_a_message(start: Start, body: dict, says: str) -> None:
    async with start() as client:
        reply = await client.post("/generate", body)
        assert reply.status == 400
        assert says in reply.body["error"]["message"]


async def test_an_unknown_sampling_parameter_is_a_plain_string_error(start: Start) -> None:
    async with start() as client:
        reply = await client.generate(heat=1)
        assert reply.status == 400
        assert "heat" in reply.body["error"]


async def test_a_request_id_in_flight_is_refused(start: Start) -> None:
    async with start(speedup=20.0) as client:
        first = asyncio.create_task(client.generate(ignore_eos=True, rid="twice"))
        await until(lambda: client.server.driver.knows("twice"))
        reply = await client.generate(rid="twice")
        assert (reply.status, reply.body["error"]["message"]) == (400, "Duplicate request ID detected: twice")
        assert (await first).status == 200


async def test_a_full_queue_is_503(start: Start) -> None:
    async with start(max_queued=0) as client:
        reply = await client.generate()
        assert (reply.status, reply.body["object"], reply.body["code"]) == (503, "error", 503)


@pytest.mark.parametrize("token", [-1, 1_024])
async def test_an_id_outside_the_vocabulary_kills_the_server(start: Start, token: int) -> None:
    async with start() as client:
        before = client.server.incarnation
        with pytest.raises(aiohttp.ClientError):
            await client.generate(5, token)
        await until(lambda: client.server.incarnation > before)
        assert (await client.generate()).status == 200


async def test_streaming_sends_all_ids_so_far(start: Start) -> None:
    body = {"input_ids": [5, 6], "stream": True, "sampling_params": {"max_new_tokens": 400, "ignore_eos": True}}
    async with start(speedup=10.0) as client, client.session.post(client.server.base_url + "/generate", json=body) as response:
        events = [line[6:].strip() async for line in response.content if line.startswith(b"data: ")]
    assert events[-1] == b"[DONE]"
    parts = [json.loads(event) for event in events[:-1]]
    assert len(parts) > 1
    assert parts[0]["output_ids"] == parts[-1]["output_ids"][: len(parts[0]["output_ids"])]
    assert parts[0]["meta_info"]["finish_reason"] is None
    assert parts[-1]["meta_info"]["completion_tokens"] == 400


async def test_information_endpoints_and_their_old_names(start: Start) -> None:
    async with start(model_path="some/model") as client:
        model = await client.get("/model_info")
        assert model.body["model_path"] == model.body["served_model_name"] == "some/model"
        assert (await client.get("/get_model_info")).body == model.body
        server = await client.get("/server_info")
        assert (
            server.body["max_total_num_tokens"] == server.body["internal_states"][0]["memory_usage"]["token_capacity"] == PROFILE.kv_tokens
        )
        assert (await client.get("/get_server_info")).body == server.body
        assert [(await client.get(path)).status for path in ("/health", "/health_generate", "/ready", "/ping")] == [200] * 4
        assert (await client.get("/get_load")).status == 404
        endpoint = client.server.endpoint()
        assert (endpoint.model_path, endpoint.kv_capacity_tokens, endpoint.vocab_size) == ("some/model", 4_000, 1_024)


async def test_loads_and_metrics_say_what_runs(start: Start) -> None:
    async with start(speedup=10.0) as client:
        tasks = [asyncio.create_task(client.generate(5, number, ignore_eos=True, max_new_tokens=1_500)) for number in range(3)]
        await until(lambda: client.server.driver.engine.running == 3)
        load = (await client.get("/v1/loads")).body["loads"][0]
        assert load["num_running_reqs"] + load["num_waiting_reqs"] == 3
        assert load["token_usage"] == pytest.approx(load["num_used_tokens"] / 4_000, abs=1e-3)
        lines = (await client.get("/metrics")).body.splitlines()
        assert 'sglang:num_running_reqs{model_name="simulated/model"} 3.0' in lines
        assert (await client.post("/flush_cache", {})).status == 400
        await client.post("/abort_request", {"abort_all": True})
        replies = await asyncio.gather(*tasks)
        assert {reply.body["meta_info"]["finish_reason"]["type"] for reply in replies} == {"abort"}
        assert (await client.post("/flush_cache", {})).status == 200


async def test_abort_by_id_answers_200_with_reason_abort(start: Start) -> None:
    async with start(speedup=10.0) as client:
        task = asyncio.create_task(client.generate(ignore_eos=True, max_new_tokens=1_500, rid="long"))
        await until(lambda: client.server.driver.knows("long"))
        assert (await client.post("/abort_request", {"rid": "lon"})).status == 200
        assert client.server.driver.knows("long")
        await client.post("/abort_request", {"rid": "long"})
        reply = await task
        assert (reply.status, reply.body["meta_info"]["finish_reason"]["type"]) == (200, "abort")


async def test_a_client_that_goes_away_is_noticed(start: Start) -> None:
    async with start(speedup=20.0) as client:
        task = asyncio.create_task(client.generate(ignore_eos=True, max_new_tokens=1_900))
        await until(lambda: client.server.driver.in_flight)
        task.cancel()
        await client.server.driver.idle.wait()
        assert client.server.driver.totals().aborted == 1
        assert client.server.seen.answered == {}


async def test_an_api_key_is_asked_for_except_where_it_is_not(start: Start) -> None:
    async with start(api_key="key") as client:
        reply = await client.generate()
        assert (reply.status, reply.body) == (401, {"error": "Unauthorized"})
        assert [(await client.get(path)).status for path in ("/health", "/ready", "/metrics")] == [200] * 3
        client.session.headers["Authorization"] = "Bearer key"
        assert (await client.generate()).status == 200


async def test_draining_finishes_what_is_there_and_what_still_comes(start: Start) -> None:
    async with start(speedup=20.0) as client:
        first = asyncio.create_task(client.generate(5, 1, ignore_eos=True))
        await until(lambda: client.server.driver.in_flight)
        drain = asyncio.create_task(client.server.drain())
        await asyncio.sleep(0)
        assert (await client.get("/health")).status == 503
        late = asyncio.create_task(client.generate(5, 2, ignore_eos=True))
        await drain
        assert [(await task).status for task in (first, late)] == [200, 200]


async def test_starting_listens_and_is_not_ready(start: Start) -> None:
    async with start(start_s=0.5, speedup=1.0) as client:
        client.server.state.starting = True
        assert (await client.get("/health")).status == 503
        assert (await client.get("/model_info")).status == 200
        client.server.state.starting = False
        assert (await client.get("/ready")).status == 200
