"""Resuming from a journal of 2 GB beside reading the file once, and appending to one that is kept durable.

    python -m benchmarks journal_speed

Rows have 1,500 ids of a vocabulary of 163,840. The file is read once beforehand, so that both find it in the page cache as far as memory
allows; they take turns, each opening in a fresh process, and the best of each are compared, which other work on the machine disturbs least.
"""

from __future__ import annotations

import hashlib
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks._job import call

SIZE = 2_000_000_000
ANSWER_TOKENS = 1_500
APPENDED = 20_000
ROUNDS = 5
_KINDS = 64


def _rows() -> Any:
    """A function that makes the response with a given number; answers repeat after _KINDS, ids never."""
    from draftmill.generation.response import Response

    answers = [[(kind * 2_654_435 + number * 40_503) % 163_840 for number in range(ANSWER_TOKENS)] for kind in range(_KINDS)]

    def made(number: int) -> Response:
        identity = hashlib.blake2b(b"%d" % number, digest_size=16).hexdigest()
        return Response(
            id=identity,
            input_hash=identity,
            output_ids=answers[number % _KINDS],
            prompt_tokens=400,
            completion_tokens=ANSWER_TOKENS,
            finish_reason="stop",
            rid=identity,
            server="bench",
            sampling={"temperature": 1.0, "top_p": 0.95, "max_new_tokens": 10_240},
            started_at=0.0,
            finished_at=1.0,
            conversation=identity,
        )

    return made


def write_journal(path: Path, size: int) -> int:
    """Write rows until the file has `size` bytes; returns how many."""
    made, written, number = _rows(), 0, 0
    with path.open("wb") as stream:
        while written < size:
            written += stream.write(made(number).to_line())
            number += 1
    return number


def read_once(path: Path) -> float:
    """Seconds to read the file from end to end."""
    began = time.perf_counter()
    buffer = bytearray(1 << 20)
    with path.open("rb", buffering=0) as stream:
        while stream.readinto(buffer):
            pass
    return time.perf_counter() - began


def measure_resume(path: Path, rows: int) -> dict[str, float]:
    read_once(path)
    reading, opening, peak = [], [], 0.0
    for _ in range(ROUNDS):
        reading.append(read_once(path))
        opened = call("--open", str(path))
        if opened["responses"] != rows:
            raise RuntimeError(f"{rows} responses were expected: {opened}")
        opening.append(opened["seconds"])
        peak = max(peak, opened["peak_rss_mb"])
        print(f"read in {reading[-1]:.2f} s, opened in {opening[-1]:.2f} s, {peak:.0f} MB", flush=True)
    resume = min(opening)
    return {
        "journal.resume_s": round(resume, 3),
        "journal.resume_read_ratio": round(resume / min(reading), 3),
        "journal.resume_peak_rss_mb": round(peak, 1),
    }


def measure_append(path: Path) -> float:
    """Rows a second, from the first append until all are durable."""
    from draftmill.generation.journal import Journal

    made = _rows()
    responses = [made(number) for number in range(APPENDED)]
    with Journal(path, path.with_suffix(".lock"), "benchmark") as journal:
        began = time.perf_counter()
        for response in responses:
            journal.append(response)
        journal.sync()
        return APPENDED / (time.perf_counter() - began)


def run() -> dict[str, float]:
    """All figures."""
    with tempfile.TemporaryDirectory(prefix="journal-speed-") as folder:
        path = Path(folder) / "big.jsonl"
        figures = measure_resume(path, write_journal(path, SIZE))
        path.unlink()
        rates = [measure_append(Path(folder) / f"append-{number}.jsonl") for number in range(ROUNDS)]
    return figures | {"journal.rows_per_s": round(statistics.median(rates), 1)}
