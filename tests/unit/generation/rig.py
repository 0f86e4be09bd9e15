"""A workspace with prompts for one data set, and the step `generate` run on it against a simulated server on a real port."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from draftmill.files import atomic_writer, sha256_file, write_json
from draftmill.generation.journal import read_responses
from draftmill.generation.response import Response
from draftmill.generation.step import generate, open_journal
from draftmill.jobs.step import StepContext
from draftmill.layout import Workspace
from draftmill.prompts.prompt import Prompt, content_id, order_key
from draftmill.simulator.profile import HostProfile
from draftmill.simulator.server import SimulatedServer, SimulatedSource
from draftmill.simulator.workload import LengthLaw, Workload
from draftmill.spec.results import GenerateResult
from tests.plans import make_dataset, make_plan


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that announces itself to nobody: the simulator's counters, a file's size."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


VOCAB = 1_000
EOS = 2
FAST = HostProfile(
    "fast", base_s=0.001, per_request_s=0.00001, kv_tokens=40_000, prefill_tokens_per_s=200_000, vocab_size=VOCAB, context_length=8_192
)


def make_prompts(count: int, tokens: int = 20, dataset: str = "alpha") -> list[Prompt]:
    """Prompts with ids below VOCAB, all different, in work order for seed 7."""
    prompts = []
    for number in range(count):
        ids = [100 + (number // 10**place) % 10 for place in range(6)] + [50] * (tokens - 6)
        prompts.append(Prompt(content_id(f"{dataset}/{number}".encode()), ids, dataset, content_id(f"c{number}".encode())))
    return sorted(prompts, key=lambda prompt: order_key(7, prompt.id))


class Rig:
    """One data set in one workspace."""

    def __init__(self, root: Path, prompts: list[Prompt], *, profile: dict[str, Any] | None = None, **dataset: Any) -> None:
        values = {"name": "alpha", "in_flight": "auto", "expected_tokens": 50, "budget_tokens": 5_000, "max_new_tokens": 400} | dataset
        self.plan = make_plan(make_dataset(**values), profile={"silent_s": 5, "drain_s": 5} | (profile or {}))
        self.stop = threading.Event()
        self.lines: list[str] = []
        self.numbers: list[dict[str, Any]] = []
        self.ctx = StepContext(self.plan, Workspace(root), self._progress, values["name"], self.stop)
        self.name = values["name"]
        self.write_prompts(prompts)

    def _progress(self, message: str, **numbers: Any) -> None:
        self.lines.append(message)
        self.numbers.append(numbers)

    def write_prompts(self, prompts: list[Prompt]) -> None:
        path = self.ctx.folder.prompts(self.name)
        with atomic_writer(path) as stream:
            stream.writelines(prompt.to_line() for prompt in prompts)
        meta = {"schema": 1, "prompts": len(prompts), "vocab_size": VOCAB, "eos_token_ids": [EOS], "sha256": sha256_file(path)}
        write_json(self.ctx.folder.prompts_meta(self.name), meta)

    def again(self, **dataset: Any) -> Rig:
        """The same workspace for another run, with other limits perhaps."""
        other = object.__new__(Rig)
        other.__dict__.update(self.__dict__)
        values = self.ctx.dataset.model_copy(update=dataset)
        other.plan = self.plan.model_copy(update={"datasets": (values,)})
        other.stop, other.lines, other.numbers = threading.Event(), [], []
        other.ctx = StepContext(other.plan, self.ctx.workspace, other._progress, self.name, other.stop)
        return other

    @property
    def journal(self) -> Path:
        return self.ctx.folder.journal(self.name)

    async def generate(self, server: SimulatedServer, source: Any = None, connector: Any = None) -> GenerateResult:
        with open_journal(self.ctx) as journal:
            return await generate(self.ctx, journal, source or SimulatedSource(server), connector)

    def responses(self) -> list[Response]:
        return list(read_responses(self.journal))

    def check(self, server: SimulatedServer) -> list[Response]:
        """Every row is what the model answers to its prompt, and every id is there once, in the raw file too."""
        prompts = {prompt["id"]: prompt for prompt in map(orjson.loads, self.ctx.folder.prompts(self.name).read_bytes().splitlines())}
        rows = [orjson.loads(line) for line in self.journal.read_bytes().splitlines() if line.strip()]
        assert not [name for name, count in Counter(row["id"] for row in rows).items() if count > 1]
        responses = self.responses()
        assert len(responses) == len(rows)
        workload = server.state.workload
        for response in responses:
            ids = prompts[response.id]["input_ids"]
            answer = workload.answer(ids, response.sampling["max_new_tokens"])
            assert response.output_ids == workload.output_ids(ids, answer)
            assert response.finish_reason == answer.finish
            assert response.completion_tokens == len(response.output_ids)
            assert response.prompt_tokens == len(ids)
        return responses


def make_server(mean: float = 50, cap: int = 400, speedup: float = 1.0, profile: HostProfile = FAST, **options: Any) -> SimulatedServer:
    return SimulatedServer(profile, 1, speedup, workload=Workload(default=LengthLaw(mean, cap), eos_id=EOS), **options)
