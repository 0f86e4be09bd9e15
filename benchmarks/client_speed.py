"""Our client beside a bare aiohttp loop, against a server in another process that answers at once.

    python -m benchmarks client_speed

Both send the same prompts of 400 ids and get the same answers of 1,500 ids, over connections that each round opens anew. The bare loop
posts bytes that were made beforehand, reads the answer and parses it, and nothing else. Ours makes the request, posts it, verifies the
answer id by id and makes the row for the journal. The two take turns, so that what else the machine does hits both alike.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from benchmarks._answers import MODEL, PROMPT_TOKENS, VOCABULARY, answering

ANSWER_TOKENS = 1_500
ROUNDS = 9
REQUESTS = {150: 9_000, 2_000: 9_000}
SAMPLING = {"temperature": 1.0, "top_p": 0.95}

One = Callable[[Any], Awaitable[None]]


async def _closed_loop(one: One, work: list[Any], in_flight: int) -> tuple[float, float]:
    """Do all of `work` with `in_flight` at a time: (requests a second, CPU seconds per 1,000)."""
    queue = iter(work)

    async def worker() -> None:
        for entry in queue:
            await one(entry)

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*[worker() for _ in range(in_flight)])
    return len(work) / (time.perf_counter() - began), 1_000 * (time.process_time() - cpu) / len(work)


def _endpoint(base_url: str) -> Any:
    from draftmill.serving.endpoint import Endpoint

    return Endpoint(base_url, None, MODEL, MODEL, "bench", "bench", 1, None, None, None, VOCABULARY)


def _prompts(count: int) -> list[Any]:
    from draftmill.prompts.prompt import Prompt, content_id

    ids = [[100_000 + number, *range(1_000, 1_000 + PROMPT_TOKENS - 1)] for number in range(count)]
    return [Prompt(content_id(b"%d" % entry[0]), entry, "bench", "bench") for entry in ids]


async def _measure(base_url: str, in_flight: int) -> dict[str, list[tuple[float, float]]]:
    import aiohttp

    from draftmill.generation.client import Client
    from draftmill.generation.verify import verify
    from draftmill.generation.work import Form, Limits, Work

    prompts = _prompts(REQUESTS[in_flight])
    endpoint = _endpoint(base_url)
    limits = Limits.of(endpoint, 10_240, VOCABULARY)
    assert limits is not None
    works = [work for prompt in prompts if isinstance(work := limits.vet(prompt), Work)]
    form = Form(SAMPLING, "draftmill-bench", frozenset(), VOCABULARY)
    bodies = [orjson.dumps({"input_ids": prompt.input_ids, "rid": prompt.id, "sampling_params": SAMPLING}) for prompt in prompts]
    url = f"{base_url}/generate"
    taken: dict[str, list[tuple[float, float]]] = {"bare": [], "ours": []}

    async def bare_round() -> tuple[float, float]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def one(body: bytes) -> None:
                async with session.post(url, data=body) as response:
                    orjson.loads(await response.read())

            return await _closed_loop(one, bodies, in_flight)

    async def our_round() -> tuple[float, float]:
        async with Client(endpoint) as client:

            async def one(work: Work) -> None:
                answer = verify(await client.generate(form.body(work)), form.expected(work))
                form.row(work, answer, endpoint.fingerprint, 0.0, 0.0)

            return await _closed_loop(one, works, in_flight)

    for _ in range(ROUNDS):
        taken["bare"].append(await bare_round())
        taken["ours"].append(await our_round())
    return taken


def _figures(in_flight: int, taken: dict[str, list[tuple[float, float]]]) -> dict[str, float]:
    """Medians over the rounds; the first, which warms up, is left out. The ratio is that of neighbouring rounds."""
    bare, ours = taken["bare"][1:], taken["ours"][1:]
    ratios = [our_rate / bare_rate for (our_rate, _), (bare_rate, _) in zip(ours, bare, strict=True)]
    median = statistics.median
    return {
        f"client.throughput_ratio_{in_flight}": round(median(ratios), 3),
        f"client.requests_per_s_{in_flight}": round(median(rate for rate, _ in ours), 1),
        f"client.bare_requests_per_s_{in_flight}": round(median(rate for rate, _ in bare), 1),
        f"client.cpu_s_per_1000_{in_flight}": round(median(cpu for _, cpu in ours), 3),
        f"client.bare_cpu_s_per_1000_{in_flight}": round(median(cpu for _, cpu in bare), 3),
    }


def run() -> dict[str, float]:
    """All figures."""
    figures: dict[str, float] = {}
    with answering(ANSWER_TOKENS) as base_url:
        for in_flight in REQUESTS:
            figures |= _figures(in_flight, asyncio.run(_measure(base_url, in_flight)))
    return figures
