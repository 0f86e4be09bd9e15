"""One generation job in a process of its own, and what it took.

python -m benchmarks._job WORKSPACE PLAN_FILE BASE_URL   prints {"peak_rss_mb", "growth_mb", "new_responses", "seconds", "cpu_s"}
python -m benchmarks._job --open JOURNAL                 prints {"peak_rss_mb", "seconds", "responses"}
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks._answers import MODEL, VOCABULARY


def own_peak_mb() -> float:
    """Peak resident memory of this process since it began to run this program, in MB (10^6 bytes)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


def own_mb() -> float:
    """Resident memory of this process now, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class _Growth:
    """How much memory a part of the program adds: the most in its second half over the most in its first."""

    def __init__(self) -> None:
        self._samples: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._over.wait(0.05):
            self._samples.append(own_mb())

    def __enter__(self) -> _Growth:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def mb(self) -> float:
        half = len(self._samples) // 2
        return max(self._samples[half:]) - max(self._samples[:half]) if half else 0.0


def call(*arguments: str) -> dict[str, Any]:
    """Run this module with `arguments` and return what it prints."""
    command = [sys.executable, "-m", "benchmarks._job", *arguments]
    result: dict[str, Any] = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    return result


class _Source:
    """The server that is always there."""

    def __init__(self, base_url: str) -> None:
        from draftmill.serving.endpoint import Endpoint

        self._endpoint = Endpoint(base_url, None, MODEL, MODEL, "bench", "bench", 1, 10**9, 262_144, None, VOCABULARY)

    async def endpoint(self, newer_than: int = -1, timeout_s: float | None = None) -> Any:
        del newer_than, timeout_s
        return self._endpoint

    async def report_wedged(self, incarnation: int, why: str) -> None:
        raise RuntimeError(f"the server of the benchmark was called wedged: {why}")


def _generate(workspace: Path, plan_file: Path, base_url: str) -> dict[str, Any]:
    from draftmill.generation.step import generate, open_journal
    from draftmill.jobs.step import StepContext
    from draftmill.layout import Workspace
    from draftmill.spec.plan import Plan

    plan = Plan.model_validate_json(plan_file.read_bytes())
    context = StepContext(plan, Workspace(workspace), lambda *_, **__: None, plan.names[0])
    began = time.perf_counter()
    with open_journal(context) as journal, _Growth() as growth:
        result = asyncio.run(generate(context, journal, _Source(base_url)))
    seconds = time.perf_counter() - began
    return {"new_responses": result.new_responses, "outcome": result.outcome, "seconds": seconds, "growth_mb": growth.mb}


def _open(path: Path) -> dict[str, Any]:
    import numpy  # noqa: F401 - imported where it is needed; here before the clock starts, which measures no imports

    from draftmill.generation.journal import Journal

    began = time.perf_counter()
    with Journal(path, path.with_suffix(".lock"), "benchmark") as journal:
        return {"seconds": time.perf_counter() - began, "responses": journal.index.responses}


if __name__ == "__main__":
    cpu = time.process_time()
    words = sys.argv[1:]
    taken = _open(Path(words[1])) if words[0] == "--open" else _generate(Path(words[0]), Path(words[1]), words[2])
    print(json.dumps(taken | {"peak_rss_mb": own_peak_mb(), "cpu_s": time.process_time() - cpu}))
