"""A whole campaign in virtual time, run by the product's own generation code against a simulated host.

Only two things differ from a real run: the loop's clock is virtual, and connections do not leave the process. The ledger, the
pace, the client, the journal and the order of work are those that run on a real host, one generation job a data set.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from draftmill.errors import PermanentError, StoppedError
from draftmill.generation.step import generate, open_journal
from draftmill.jobs.step import StepContext
from draftmill.layout import Workspace
from draftmill.simulator import virtual
from draftmill.simulator.engine import Counters
from draftmill.simulator.material import Material, campaign_folder
from draftmill.simulator.profile import HostProfile
from draftmill.simulator.server import SimulatedServer, SimulatedSource
from draftmill.spec.plan import DatasetPlan
from draftmill.spec.results import GenerateResult

SAMPLE_S = 60.0


@dataclass(frozen=True)
class Sample:
    """The host at a moment. at_s: virtual seconds. used: KV tokens. tokens_per_s: over the interval before."""

    at_s: float
    running: int
    waiting: int
    used: int
    tokens_per_s: float


@dataclass
class Simulated:
    """What became of a campaign. seconds: virtual, from the first request to the last answer. took_s: real seconds of the simulation."""

    host: HostProfile
    seconds: float
    took_s: float
    counters: Counters
    results: list[GenerateResult]
    spans: dict[str, tuple[float, float]]
    samples: list[Sample] = field(default_factory=list)

    @property
    def completion_tokens(self) -> int:
        """Of all data sets."""
        return sum(result.completion_tokens for result in self.results)

    @property
    def kv_use(self) -> float:
        """Mean share of the KV cache in use, over the whole time."""
        return self.counters.kv_token_s / self.seconds / self.host.kv_tokens if self.seconds else 0.0

    def budget_error(self, dataset: DatasetPlan) -> float:
        """(total - budget) / budget of a data set."""
        result = next(result for result in self.results if result.dataset == dataset.name)
        return result.completion_tokens / dataset.budget_tokens - 1.0


Tell = Callable[[str], None]


def simulate(material: Material, host: HostProfile, tell: Tell | None = None, scratch: Path | None = None) -> Simulated:
    """Run the campaign of `material` on `host`. `tell` gets a line for each virtual hour. Files go below `scratch`, and away again.

    Raises what generation raises where the campaign cannot be run on this host.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="draftmill-simulate-", dir=scratch) as root:
        run = _Run(material, host, Path(root), tell)
        # aiohttp and asyncio report cancelled connections at the end of a run; nobody needs to read that.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        result = virtual.run(run.main())
    result.took_s = time.monotonic() - began
    return result


class _Run:
    def __init__(self, material: Material, host: HostProfile, root: Path, tell: Tell | None) -> None:
        self._material = material
        self._plan = material.plan
        self._host = host
        self._root = root
        self._tell = tell
        self._stop = threading.Event()
        self._results: dict[str, GenerateResult] = {}
        self._spans: dict[str, tuple[float, float]] = {}
        self._samples: list[Sample] = []
        self._done = 0

    async def main(self) -> Simulated:
        folder = campaign_folder(self._root, self._plan)
        for dataset in self._plan.datasets:
            self._material.write(folder, dataset, self._host.vocab_size)
        async with SimulatedServer(self._host, self._material.workload.seed, workload=self._material.workload, in_memory=True) as server:
            self._server = server
            watching = asyncio.create_task(self._watch())
            try:
                await self._all()
                seconds = server.driver.now()
            finally:
                watching.cancel()
            results = [self._results[name] for name in self._plan.names]
            return Simulated(self._host, seconds, 0.0, server.driver.totals(), results, self._spans, self._samples)

    async def _all(self) -> None:
        """At most `datasets_at_once` at a time, in the plan's order: what the slots of real jobs come to."""
        slots = asyncio.Semaphore(self._plan.datasets_at_once)
        jobs = [asyncio.create_task(self._one(dataset, slots)) for dataset in self._plan.datasets]
        try:
            await asyncio.gather(*jobs)
        except StoppedError:
            raise PermanentError("the simulation was stopped") from None
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

    async def _one(self, dataset: DatasetPlan, slots: asyncio.Semaphore) -> None:
        await slots.acquire()
        # A slot is given back once, as soon as the budget holds its holder back: see draftmill.generation.slots.
        with contextlib.ExitStack() as slot:
            slot.callback(slots.release)
            began = self._server.driver.now()
            context = StepContext(self._plan, Workspace(self._root), _ignore, dataset.name, self._stop)
            with open_journal(context) as journal:
                self._results[dataset.name] = await generate(
                    context, journal, SimulatedSource(self._server), self._server.connector, covered=slot.close
                )
            self._spans[dataset.name] = (began, self._server.driver.now())

    async def _watch(self) -> None:
        """Sample the host every SAMPLE_S, and tell every hour."""
        before = 0
        while True:
            await asyncio.sleep(SAMPLE_S)
            self._server.driver.look()
            engine, now = self._server.driver.engine, self._server.driver.now()
            decoded = self._server.driver.totals().decoded_tokens
            self._samples.append(Sample(now, engine.running, engine.waiting, engine.used, (decoded - before) / SAMPLE_S))
            before = decoded
            if self._tell is not None and round(now / SAMPLE_S) % 60 == 0:
                self._tell(
                    f"hour {now / 3600:.0f}: {decoded:,} tokens, {engine.running} running, {engine.used / self._host.kv_tokens:.0%} of KV"
                )


def _ignore(message: str, **numbers: float | int | str | None) -> None:
    """Progress of a simulated job: the samples say it better."""
    del message, numbers
