"""One schedule played: clients and servers as processes, what goes wrong when it is due, and what must hold in the end."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import psutil

from draftmill.errors import ExitCode
from draftmill.files import write_json
from draftmill.generation.book import failed_file, read_failed
from draftmill.generation.ledger import missing_is_settled
from tests.integration.generation.disk import Disk
from tests.integration.generation.schedules import MAX_TOKENS, MEAN_TOKENS, PROMPTS, Event, Schedule
from tests.integration.generation.server import ENVIRONMENT, ROOT, Supervised
from tests.unit.generation.rig import Rig, make_prompts

LOOK_S = 0.01
PATIENCE_S = 1.5
"""An event whose rows do not come is due all the same after so long: it may be what brings them."""

LIMIT_S = 120.0
BY_SIGNAL = (-signal.SIGKILL, -signal.SIGTERM)
"""SIGTERM ends a process at once that is still starting, or has its result out already."""


class Stage:
    """Where the schedule is played: in `folder`."""

    def __init__(self, folder: Path, schedule: Schedule) -> None:
        self.schedule = schedule
        self._server_file = folder / "server.json"
        self.server = Supervised(self._server_file, schedule.seed)
        self.disk = Disk(folder / "disk", small=schedule.fills_the_disk)
        self.rig = Rig(
            self.disk.root / "workspace",
            make_prompts(PROMPTS),
            profile={"silent_s": 0.8, "drain_s": schedule.drain_s},
            in_flight=schedule.in_flight,
            expected_tokens=MEAN_TOKENS,
            max_new_tokens=MAX_TOKENS,
            budget_tokens=schedule.budget or 10**6,
        )
        self._plan = folder / "plan.json"
        write_json(self._plan, self.rig.plan.model_dump(mode="json"))
        self._folder = folder
        self._events = list(schedule.events)
        self._last_event = time.monotonic()
        self._free_at: float | None = None
        self._client: subprocess.Popen[bytes] | None = None
        self._journal_end = 0
        self._rows = 0
        self.acknowledged: dict[str, bytes] = {}
        self.exits: list[int] = []
        self.fired: Counter[str] = Counter()

    def play(self) -> dict[str, Any]:
        """Start clients, one after the other, until one ends with 0; returns what that one printed."""
        deadline = time.monotonic() + LIMIT_S
        with self.server:
            try:
                while True:
                    self._start_client()
                    code = self._until_it_ends(deadline)
                    self._after(code)
                    if code == ExitCode.DONE:
                        result: dict[str, Any] = json.loads((self._folder / "out").read_bytes())
                        self._check_another_start()
                        return result
            finally:
                if self._client is not None and self._client.poll() is None:
                    self._client.kill()
                    self._client.wait()

    def close(self) -> None:
        """Unmount."""
        self.disk.close()

    def _command(self) -> list[str]:
        module = "tests.integration.generation.client"
        return [sys.executable, "-m", module, str(self._server_file), str(self._plan), str(self.rig.ctx.workspace.root)]

    def _start_client(self) -> None:
        with (self._folder / "out").open("wb") as out, (self._folder / "err").open("ab") as err:
            self._client = subprocess.Popen(self._command(), stdout=out, stderr=err, cwd=ROOT, env=ENVIRONMENT)
        if self.disk.full:
            self.disk.bind(self._client.pid, self._journal_end)

    def _until_it_ends(self, deadline: float) -> int:
        assert self._client is not None
        while (code := self._client.poll()) is None:
            self.server.look()
            self._read_journal()
            now = time.monotonic()
            if self._free_at is not None and now >= self._free_at:
                self._free()
            if self._events and (self._rows >= self._events[0].at_rows or now - self._last_event > PATIENCE_S):
                self._last_event = now
                self._fire(self._events.pop(0))
            assert now < deadline, f"no end after {LIMIT_S:g} s; exits so far: {self.exits}"
            time.sleep(LOOK_S)
        return code

    def _after(self, code: int) -> None:
        """The client has ended: what is in the journal now must stay, and what would hold the next one up for good is put right."""
        self.exits.append(code)
        self._read_journal()
        assert code in (ExitCode.DONE, ExitCode.TEMPORARY, ExitCode.STOPPED, *BY_SIGNAL), f"exit code {code}"
        self.server.revive()
        if self.disk.full and not self._events:
            self._free()

    def _read_journal(self) -> None:
        """Take note of every whole row: from now on it must stay."""
        if not self.rig.journal.exists():
            return
        with self.rig.journal.open("rb") as stream:
            stream.seek(self._journal_end)
            data = stream.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._journal_end += len(whole)
        for line in whole.splitlines(keepends=True):
            if line.strip():
                self.acknowledged[orjson.loads(line)["id"]] = line
                self._rows += 1

    def _fire(self, event: Event) -> None:
        self.fired[event.detail["kind"] if event.kind == "fault" else event.kind] += 1
        getattr(self, f"_{event.kind}")(**({"fault": event.detail} if event.kind == "fault" else event.detail))

    def _kill_client(self, tail: str = "none", cut: float = 0.5, seed: float = 0) -> None:
        assert self._client is not None
        self._client.kill()
        self._client.wait()
        self._read_journal()
        if tail == "none" or not self.rig.journal.exists() or self.disk.full:
            return
        rng = random.Random(seed)
        some = next(iter(self.acknowledged.values()), b'{"id":"x","output_ids":[1,2]}\n')
        piece = some[: max(1, int(cut * (len(some) - 2)))] if tail == "row" else rng.randbytes(200).replace(b"\n", b"?")
        with self.rig.journal.open("ab") as stream:  # what a power cut leaves: the beginning of a row, or a block of anything
            stream.write(piece)

    def _stop_client(self) -> None:
        assert self._client is not None
        self._client.terminate()

    def _rival(self) -> None:
        assert self._client is not None
        while self._client.poll() is None and not self._has_the_journal(self._client.pid):  # before that it would be no rival
            time.sleep(LOOK_S)
        done = subprocess.run(self._command(), capture_output=True, cwd=ROOT, env=ENVIRONMENT, check=False, timeout=LIMIT_S)
        if self._client.poll() is None:
            assert done.returncode == ExitCode.TEMPORARY, done.stderr
            assert b"being run by" in done.stderr or b"being written by" in done.stderr, done.stderr

    def _has_the_journal(self, pid: int) -> bool:
        lock = str(self.rig.ctx.folder.journal_lock("alpha"))
        with contextlib.suppress(psutil.Error):
            return lock in {item.path for item in psutil.Process(pid).open_files()}
        return False

    def _kill_server(self, down_s: float) -> None:
        self.server.kill(down_s)

    def _give_up_server(self) -> None:
        self.server.kill(None)

    def _fault(self, fault: dict[str, Any]) -> None:
        self.server.add_fault(fault)

    def _disk_full(self, for_s: float, kill: bool) -> None:
        assert self._client is not None
        self.disk.fill()
        self.disk.bind(self._client.pid, self._journal_end)
        self._free_at = time.monotonic() + for_s
        if kill:
            self._kill_client()

    def _free(self) -> None:
        self.disk.free(self._client.pid if self._client is not None else None)
        self._free_at = None

    def _check_another_start(self) -> None:
        """One more start finds nothing to do: it sends nothing and writes nothing."""
        if not self.schedule.run_again:
            return
        before, journal = self.server.requests_seen(), self.rig.journal.read_bytes()
        done = subprocess.run(self._command(), capture_output=True, cwd=ROOT, env=ENVIRONMENT, check=False)
        assert done.returncode == ExitCode.DONE, done.stderr
        assert self.server.requests_seen() == before
        assert self.rig.journal.read_bytes() == journal

    def check(self, result: dict[str, Any]) -> None:
        """Each id once, each row what the model answers to its prompt, nothing lost that was there once, totals right."""
        responses = self.rig.check(self.server.model)
        lines = set(self.rig.journal.read_bytes().splitlines(keepends=True))
        lost = [prompt_id for prompt_id, line in self.acknowledged.items() if line not in lines]
        assert not lost, f"rows that were in the journal are gone: {lost}"
        total = sum(response.completion_tokens for response in responses)
        assert (result["responses"], result["completion_tokens"]) == (len(responses), total)
        assert result["prompt_tokens"] == sum(response.prompt_tokens for response in responses)
        if result["outcome"] == "exhausted":
            given_up = {entry["id"] for entry in read_failed(failed_file(self.rig.journal)) if entry["settled"]}
            done = {response.id for response in responses}
            assert not done & given_up
            assert done | given_up == {prompt.id for prompt in make_prompts(PROMPTS)}
            return
        assert result["outcome"] == "budget_reached"
        budget = self.rig.ctx.dataset.budget_tokens
        assert missing_is_settled(budget, total, total / len(responses))
        assert total - budget <= max(response.completion_tokens for response in responses)
