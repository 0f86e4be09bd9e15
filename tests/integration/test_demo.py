"""`make demo` as a user runs it, on the real Airflow, SSH and SGLang, in a state folder of its own: run, look, run again, stop."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from demo.processes import leftovers
from demo.state import ROOT, Demo

SGLANG_PYTHON = Path(os.environ.get("DRAFTMILL_SGLANG_PYTHON") or ROOT / ".venv-sglang" / "bin" / "python")
SECONDS = 1500
DATASETS = {
    *("B1_glaive", "B2_opencodeinstruct", "B3_magicoder", "B4_mixturethoughts"),
    *("B5_openthoughts", "B6_ultrachat", "B7_sharegpt", "B8_sweagent"),
}

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.airflow_live,
    pytest.mark.slow,
    pytest.mark.timeout(SECONDS),
    pytest.mark.skipif(not SGLANG_PYTHON.exists(), reason=f"the real SGLang environment is absent: {SGLANG_PYTHON}; `make setup` makes it"),
]


def drive(demo: Demo, verb: str, home: Path) -> subprocess.CompletedProcess[str]:
    """What the Makefile runs, with an empty home and an environment that holds next to nothing."""
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "PYTHONPATH": str(ROOT / "include"),
        "DRAFTMILL_DEMO_DIR": str(demo.root),
        "DRAFTMILL_SGLANG_PYTHON": str(SGLANG_PYTHON),
    }
    command = [sys.executable, "-m", "demo.run", verb]
    return subprocess.run(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, check=False
    )


def listening(demo: Demo) -> set[str]:
    """The addresses that the demo's processes and their children listen on now."""
    addresses = set()
    for process in leftovers(demo):
        with contextlib.suppress(psutil.Error):
            for member in (process, *process.children(recursive=True)):
                addresses |= {item.laddr.ip for item in member.net_connections("inet") if item.status == psutil.CONN_LISTEN}
    return addresses


def drive_and_listen(demo: Demo, home: Path) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """Start the demo, and collect where it listens at any time until it is done."""
    addresses: set[str] = set()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        run = pool.submit(drive, demo, "start", home)
        while concurrent.futures.wait([run], timeout=3).not_done:
            addresses |= listening(demo)
    return run.result(), addresses


@dataclass
class Ran:
    """A demo after its first run."""

    demo: Demo
    home: Path
    output: str
    report: dict[str, Any]
    listened: set[str]

    def journal(self, name: str) -> list[dict[str, Any]]:
        """The rows of a data set's journal, read without any of draftmill's code."""
        (entry,) = [entry for entry in self.report["datasets"] if entry["name"] == name]
        return [json.loads(line) for line in (ROOT / entry["journal"]).read_text().splitlines()]

    def journals(self) -> dict[str, bytes]:
        """The bytes of all journals."""
        return {entry["name"]: (ROOT / entry["journal"]).read_bytes() for entry in self.report["datasets"]}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    demo = Demo(tmp_path_factory.mktemp("demo"))
    home = tmp_path_factory.mktemp("home")
    try:
        outcome, listened = drive_and_listen(demo, home)
        assert outcome.returncode == 0, outcome.stdout[-8000:]
        yield Ran(demo, home, outcome.stdout, json.loads(demo.report.read_text()), listened)
    finally:
        drive(demo, "stop", home)


def test_the_report_is_true_to_the_files(ran: Ran) -> None:
    assert set(ran.report) == {"campaign", "server_version", "corpus", "datasets"}
    assert ran.report["campaign"] == "demo"
    assert {entry["name"] for entry in ran.report["datasets"]} == DATASETS
    for entry in ran.report["datasets"]:
        rows = ran.journal(entry["name"])
        tokens = sum(len(row["output_ids"]) for row in rows)
        assert (entry["completion_tokens"], entry["new_tokens"], entry["responses"]) == (tokens, tokens, len(rows))
        assert len({row["id"] for row in rows}) == len(rows)


def test_every_data_set_keeps_its_budget_or_runs_out_of_prompts(ran: Ran) -> None:
    outcomes = {entry["name"]: entry["outcome"] for entry in ran.report["datasets"]}
    assert outcomes == dict.fromkeys(DATASETS, "budget_reached") | {"B5_openthoughts": "exhausted"}
    for entry in ran.report["datasets"]:
        if entry["outcome"] == "budget_reached":
            assert abs(entry["completion_tokens"] - entry["budget_tokens"]) <= 0.01 * entry["budget_tokens"], entry


def test_answers_end_in_both_ways_and_at_many_lengths(ran: Ran) -> None:
    rows = [row for name in DATASETS for row in ran.journal(name)]
    reasons = Counter(row["finish_reason"] for row in rows)
    assert set(reasons) == {"stop", "length"}
    assert min(reasons.values()) > 0.05 * len(rows)
    assert len({row["completion_tokens"] for row in rows}) > 50


def test_the_corpus_holds_every_generated_token_once(ran: Ran) -> None:
    corpus = [json.loads(line) for line in (ROOT / ran.report["corpus"]).read_text().splitlines()]
    answers = {row["id"]: row["output_ids"] for name in DATASETS for row in ran.journal(name)}
    kept = {row["id"]: [token for token, loss in zip(row["input_ids"], row["loss_mask"], strict=True) if loss] for row in corpus}
    assert len(kept) == len(corpus) > 0.95 * len(answers)
    assert kept == {identity: answers[identity] for identity in kept}


def test_the_output_shows_the_totals_and_where_to_look(ran: Ran) -> None:
    assert "http://127.0.0.1:" in ran.output
    assert ran.report["corpus"] in ran.output
    for entry in ran.report["datasets"]:
        assert any(entry["name"] in line and f"{entry['completion_tokens']:,}" in line for line in ran.output.splitlines())


def test_a_data_set_follows_the_one_before_it_within_seconds(ran: Ran) -> None:
    """Two generate at once here: the third begins when the first of them ends, if not before, and so on."""
    times = [[(row["started_at"], row["finished_at"]) for row in ran.journal(name)] for name in DATASETS]
    starts, ends = sorted(min(rows)[0] for rows in times), sorted(max(end for _, end in rows) for rows in times)
    gaps = [start - end for start, end in zip(starts[2:], ends, strict=False)]
    print(f"seconds from the end of a data set to the start of the next: {', '.join(f'{gap:.1f}' for gap in gaps)}")
    assert max(gaps) < 15


def test_nothing_ever_listened_beyond_the_loopback(ran: Ran) -> None:
    assert ran.listened == {"127.0.0.1"}


def test_a_second_run_generates_nothing_and_stopping_leaves_nothing(ran: Ran) -> None:
    before = ran.journals()
    again = drive(ran.demo, "start", ran.home)
    assert again.returncode == 0, again.stdout[-8000:]
    report = json.loads(ran.demo.report.read_text())
    assert {entry["new_tokens"] for entry in report["datasets"]} == {0}
    assert report["server_version"] == ran.report["server_version"]
    assert ran.journals() == before
    stopped = drive(ran.demo, "stop", ran.home)
    assert stopped.returncode == 0, stopped.stdout
    assert leftovers(ran.demo) == []
    assert list(ran.home.iterdir()) == []
