"""`python -m draftmill corpus verify DIR`: re-checks a corpus from its files alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from draftmill.corpus.manifest import damaged_files, read_manifest

MAX_FAULTS = 20


@dataclass
class Report:
    """What a check found. No faults means: the corpus is what its manifest says."""

    manifest_sha256: str = ""
    rows: int = 0
    held_out_rows: int = 0
    faults: list[str] = field(default_factory=list)

    def fault(self, text: str) -> None:
        """Note a fault; the first MAX_FAULTS are kept."""
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(text)


def verify(folder: Path) -> Report:
    """Check hashes, counts, masks, vocabulary bounds, ids and the held-out split of the corpus in `folder`."""
    report = Report()
    manifest = read_manifest(folder)
    if manifest is None:
        report.fault("manifest.json is missing, damaged, or of another schema")
        return report
    report.manifest_sha256 = manifest["sha256"]
    for fault in damaged_files(folder, manifest):
        report.fault(fault)
    if not report.faults:
        check_rows(folder, manifest, report)
    return report


def read_rows(folder: Path, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file:line, row) of a split, whether it is one file, shards, or compressed."""
    single = [path for path in (folder / f"{split}.jsonl", folder / f"{split}.jsonl.zst") if path.is_file()]
    for path in single or sorted((folder / split).glob("*.jsonl*")):
        for number, line in enumerate(lines(path), 1):
            yield f"{path.relative_to(folder)}:{number}", orjson.loads(line)


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, decompressed where its name ends in .zst."""
    if path.suffix != ".zst":
        with path.open("rb") as stream:
            yield from stream
        return
    import io

    import zstandard

    with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as plain:
        yield from io.BufferedReader(plain)


def check_rows(folder: Path, manifest: dict[str, Any], report: Report) -> None:
    """Check every row by itself, and the sums over all of them."""
    seen: set[str] = set()
    sums: dict[str, Counter[str]] = {split: Counter() for split in ("train", "held_out")}
    for split, total in sums.items():
        for where, row in read_rows(folder, split):
            for fault in row_faults(row, manifest["model"]["vocab_size"]):
                report.fault(f"{where}: {fault}")
            if row["id"] in seen:
                report.fault(f"{where}: id {row['id']} occurs twice")
            seen.add(row["id"])
            total.update(rows=1, loss_tokens=sum(row["loss_mask"]), total_tokens=len(row["input_ids"]))
    report.rows, report.held_out_rows = sums["train"]["rows"], sums["held_out"]["rows"]
    totals = manifest["totals"]
    for name, found in (("rows", report.rows), ("held_out_rows", report.held_out_rows), ("loss_tokens", sums["train"]["loss_tokens"])):
        if totals[name] != found:
            report.fault(f"manifest.json: {name} is {totals[name]}, the files have {found}")


def row_faults(row: dict[str, Any], vocab_size: int) -> Iterator[str]:
    """What is wrong with one row."""
    ids, mask = row["input_ids"], row["loss_mask"]
    expected = [0] * row["prompt_tokens"] + [1] * row["completion_tokens"]
    if mask != expected:
        yield "the loss mask is not zeros for the prompt and ones for the answer"
    if len(ids) != len(mask):
        yield f"{len(ids)} token ids and {len(mask)} mask values"
    if not all(0 <= token < vocab_size for token in ids):
        yield f"a token id lies outside the vocabulary of {vocab_size}"
