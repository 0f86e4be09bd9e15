"""The step `generate` as its own process, by the product's own command line; only where its server comes from is a file.

    python -m tests.integration.generation.client SERVER_FILE PLAN_FILE WORKSPACE

SERVER_FILE is what a supervisor would know: `{"incarnation", "ready", "gone", "endpoint": {...}}`. A wedged server is reported by an empty
file `SERVER_FILE.wedged-INCARNATION`. Waiting times are short, so that a schedule of faults takes seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from draftmill import cli
from draftmill.files import read_json
from draftmill.generation import faults, runner
from draftmill.serving import lease
from draftmill.serving.endpoint import Endpoint, ServerGone

_LOOK_S = 0.02


class FileSource:
    """A ServerSource that reads a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def endpoint(self, newer_than: int = -1, timeout_s: float | None = None) -> Endpoint:
        del timeout_s
        while True:
            state = read_json(self._path)
            if state["gone"]:
                raise ServerGone("the server died and stays dead; a retry starts it again")
            if state["ready"] and state["incarnation"] > newer_than:
                return Endpoint(**state["endpoint"])
            await asyncio.sleep(_LOOK_S)

    async def report_wedged(self, incarnation: int, why: str) -> None:
        del why
        self._path.with_name(f"{self._path.name}.wedged-{incarnation}").touch()


def main(server_file: str, plan_file: str, workspace: str) -> int:
    @contextlib.contextmanager
    def hold(*_: Any) -> Iterator[FileSource]:
        yield FileSource(Path(server_file))

    lease.hold = hold  # type: ignore[assignment]
    faults.MAX_WAIT_S = 0.4
    runner.NO_SPACE_PATIENCE_S = 0.8
    return cli.main(["generate", "--plan", plan_file, "--workspace", workspace, "--dataset", "alpha"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
