"""The books of one run: what was kept, what failed, what was given up, and the rows that a full disk has not taken yet."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from draftmill.errors import DraftmillError, PermanentError, TemporaryError
from draftmill.files import atomic_writer
from draftmill.generation.journal import Journal, NoSpace
from draftmill.generation.ledger import Ledger
from draftmill.generation.response import Response
from draftmill.generation.work import Work

GIVEN_UP_SHARE = 0.02
GIVEN_UP_ALWAYS = 3
GIVEN_UP_AT_ONCE = 12
"""More than this share, and more than that number, of prompts given up fails the run: at its end, or at once from the larger number on."""


@dataclass
class Book:
    """Totals of one run over one data set."""

    journal: Journal
    ledger: Ledger
    failed_path: Path
    new_tokens: int = 0
    new_responses: int = 0
    prompt_tokens: int = 0
    finish_reasons: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    surplus: int = 0
    given_up: list[dict[str, Any]] = field(default_factory=list)
    unwritten: list[Response] = field(default_factory=list)

    def keep(self, response: Response) -> None:
        """Write a response, or hold it in memory where there is no space for it now."""
        if self.unwritten:
            self.unwritten.append(response)
            return
        try:
            self._write(response)
        except NoSpace:
            self.unwritten.append(response)

    def write_held(self) -> None:
        """Try again to write what is held. NoSpace where there is still no space."""
        while self.unwritten:
            self._write(self.unwritten[0])
            del self.unwritten[0]

    def _write(self, response: Response) -> None:
        self.journal.append(response)
        self.ledger.settle(response.completion_tokens)
        self.new_tokens += response.completion_tokens
        self.new_responses += 1
        self.prompt_tokens += response.prompt_tokens
        self.finish_reasons[response.finish_reason] += 1

    def give_up(self, work: Work, kind: str, message: str) -> None:
        """List a prompt that failed too often."""
        entry = {"id": work.id, "kind": kind, "reason": message, "attempts": work.attempts, "at": time.time()}
        self.given_up.append(entry)

    def verdict(self, final: bool) -> DraftmillError | None:
        """The error that the prompts given up amount to, or None where they are few. `final`: nothing is left to send."""
        count = len(self.given_up)
        if count <= max(GIVEN_UP_ALWAYS if final else GIVEN_UP_AT_ONCE, GIVEN_UP_SHARE * (count + self.new_responses)):
            return None
        last = self.given_up[-1]
        kind, of_kind = Counter(entry["kind"] for entry in self.given_up).most_common(1)[0]
        text = f"{count} prompts failed for good, {of_kind} of them by {kind} (last: {last['reason']}); see {self.failed_path}"
        if not self.new_responses and kind == "refused":
            return PermanentError(f"{text}; no request was accepted: correct the sampling parameters or the server profile")
        return TemporaryError(f"{text}; a retry sends them again")

    def write_failed(self, settled: bool) -> None:
        """Write the list of prompts given up. `settled`: the run ended in order, so a later run does not send them again."""
        if not self.given_up and not self.failed_path.exists():
            return
        kept = [entry for entry in read_failed(self.failed_path) if entry.get("settled")]
        known = {entry["id"] for entry in self.given_up}
        rows = [entry for entry in kept if entry["id"] not in known] + [entry | {"settled": settled} for entry in self.given_up]
        with atomic_writer(self.failed_path) as stream:
            stream.writelines(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)


def failed_file(journal: Path) -> Path:
    """Where prompts that were given up are listed, beside the journal."""
    return journal.with_suffix(".failed.jsonl")


def read_failed(path: Path) -> list[dict[str, Any]]:
    """The prompts given up by earlier runs; empty where there is no list."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [entry for entry in map(orjson.loads, lines) if isinstance(entry, dict)]
