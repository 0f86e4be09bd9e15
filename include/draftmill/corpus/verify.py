"""`python -m draftmill corpus verify DIR`: re-checks a corpus from its files alone.

Hashes, counts, masks, vocabulary bounds, unique ids, the held-out split, and that every export says the same. One byte changed anywhere
is found: the manifest has the hash of every file, and `manifest.json.sha256` has the hash of the manifest.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from draftmill.corpus.checks.exports import check_arrow, check_conversations, check_vocabulary
from draftmill.corpus.checks.read import read_rows
from draftmill.corpus.checks.report import Report
from draftmill.corpus.checks.rows import RowChecks
from draftmill.corpus.manifest import damaged_files, files_below, read_manifest
from draftmill.errors import ExitCode

Tick = Callable[[str, int], None]
"""Called now and then with what is being done and the number of rows done; may raise to stop."""

TICK_ROWS = 1000


def verify(folder: Path, tick: Tick = lambda *_: None) -> Report:
    """Check the corpus in `folder`. Damaged files end the check, since what follows would only repeat it in other words."""
    report = Report()
    manifest = read_manifest(folder)
    if manifest is None:
        report.fault("manifest.json: missing, damaged (it does not fit manifest.json.sha256), or of another schema")
        return report
    report.manifest_sha256 = manifest["sha256"]
    tick("hashing the files", 0)
    for fault in damaged_files(folder, manifest):
        report.fault(fault)
    unknown = [path.relative_to(folder).as_posix() for path in files_below(folder)]
    report.notes += [f"{name}: is not in the manifest" for name in unknown if name not in manifest["files"]]
    if not report.faults:
        _check_content(folder, manifest, report, tick)
    return report


def _check_content(folder: Path, manifest: dict[str, Any], report: Report, tick: Tick) -> None:
    checks = RowChecks(manifest, report)
    for split in ("train", "held_out"):
        for number, (where, value) in enumerate(read_rows(folder, split)):
            if number % TICK_ROWS == 0:
                tick(f"checking {split}", number)
            checks.row(split, where, value)
    checks.finish()
    if report.faults:
        return
    check_vocabulary(folder, manifest, checks.counts.total(), report)
    for split in ("train", "held_out"):
        tick(f"comparing the exports of {split}", 0)
        check_arrow(folder, split, report)
        check_conversations(folder, split, report)


def main(argv: list[str]) -> int:
    """The command line. Exit code 0: the corpus is what its manifest says; 65: it is not, and every fault is a line."""
    parser = argparse.ArgumentParser(prog="draftmill corpus verify", description="Check a corpus from its files alone.")
    parser.add_argument("folder", metavar="DIR", type=Path, help="the corpus: the folder with manifest.json")
    folder = parser.parse_args(argv).folder
    if not folder.is_dir():
        _say(f"{folder}: no such folder; give the folder that has manifest.json")
        return ExitCode.PERMANENT
    report = verify(folder)
    for note in report.notes:
        _say(f"note: {note}")
    for fault in report.faults:
        _say(f"fault: {fault}")
    if report.faults:
        more = f"; {report.left_out} more faults" if report.left_out else ""
        _say(f"{folder}: NOT whole{more}")
        return ExitCode.PERMANENT
    _say(f"{folder}: whole; {report.rows:,} rows and {report.held_out_rows:,} held out, manifest {report.manifest_sha256[:16]}")
    return ExitCode.DONE


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
