"""Checks of the rows of a corpus: each by itself, all together, and against the manifest."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any

from draftmill.corpus.checks.report import Report
from draftmill.corpus.token_counts import TokenCounts
from draftmill.prompts.prompt import content_id
from draftmill.prompts.split import is_held_out

_TEXTS = ("id", "dataset", "conversation", "finish_reason")
_NUMBERS = ("turn", "prompt_tokens", "completion_tokens")


class RowChecks:
    """Takes the rows of both splits, then compares the sums. Memory: 24 bytes a row, and the token counts.

    counts: the generated tokens of the training rows.
    """

    def __init__(self, manifest: dict[str, Any], report: Report) -> None:
        self.manifest = manifest
        self.report = report
        self.vocab_size: int = manifest["model"]["vocab_size"]
        self.counts = TokenCounts(self.vocab_size)
        self._longest: int | None = manifest["corpus"]["max_length"]
        self._ids = array("Q")
        self._conversations = {"train": array("Q"), "held_out": array("Q")}
        self._sums: dict[tuple[str, str], Counter[str]] = {}

    def row(self, split: str, where: str, row: Any) -> None:
        """Check one row; `where` is its file and line."""
        fault = shape_fault(row) or self._content_fault(split, row)
        if fault:
            self.report.fault(f"{where}: {fault}")
            return
        self._ids.append(_key(row["id"]))
        self._conversations[split].append(_key(row["conversation"] or row["id"]))
        sums = self._sums.setdefault((split, row["dataset"]), Counter())
        sums["rows"] += 1
        sums["loss_tokens"] += row["completion_tokens"]
        sums["total_tokens"] += len(row["input_ids"])
        sums["cut_answers"] += row["finish_reason"] == "length"

    def _content_fault(self, split: str, row: dict[str, Any]) -> str | None:
        import numpy as np

        ids: list[int] = row["input_ids"]
        if min(ids) < 0 or max(ids) >= self.vocab_size:
            return f"a token id lies outside the vocabulary of {self.vocab_size}"
        if self._longest is not None and len(ids) > self._longest:
            return f"{len(ids)} tokens, longer than max_length {self._longest}"
        fraction = self.manifest["corpus"]["held_out_fraction"]
        if is_held_out(row["conversation"] or row["id"], self.manifest["sampling"]["seed"], fraction) != (split == "held_out"):
            return f"its conversation does not belong to the {split} split"
        if split == "train":
            self.counts.add(np.array(ids[row["prompt_tokens"] :], dtype=np.int32))
        return None

    def finish(self) -> None:
        """Check what only all rows together can show."""
        import numpy as np

        ids = np.frombuffer(self._ids, dtype=np.uint64)
        doubled = len(ids) - len(np.unique(ids))
        if doubled:
            self.report.fault(f"{doubled} rows have an id that another row has")
        train, held_out = (np.unique(np.frombuffer(keys, dtype=np.uint64)) for keys in self._conversations.values())
        shared = len(np.intersect1d(train, held_out, assume_unique=True))
        if shared:
            self.report.fault(f"{shared} conversations are in both splits")
        self._compare_totals()
        self._compare_datasets()

    def _compare_totals(self) -> None:
        totals, found = self.manifest["totals"], {split: self._sum(split) for split in ("train", "held_out")}
        self.report.rows, self.report.held_out_rows = found["train"]["rows"], found["held_out"]["rows"]
        for split, prefix in (("train", ""), ("held_out", "held_out_")):
            for name in ("rows", "loss_tokens", "total_tokens"):
                self._compare(f"totals.{prefix}{name}", totals[f"{prefix}{name}"], found[split][name])

    def _compare_datasets(self) -> None:
        for name, entry in self.manifest["datasets"].items():
            train, held_out = (self._sums.get((split, name), Counter()) for split in ("train", "held_out"))
            both = train + held_out
            self._compare(f"datasets.{name}.train", entry["train"], train["rows"])
            self._compare(f"datasets.{name}.held_out", entry["held_out"], held_out["rows"])
            for number in ("loss_tokens", "total_tokens", "cut_answers"):
                self._compare(f"datasets.{name}.{number}", entry[number], both[number])
        unknown = {name for _, name in self._sums} - set(self.manifest["datasets"])
        if unknown:
            self.report.fault(f"rows of data sets that the manifest does not name: {', '.join(sorted(unknown))}")

    def _compare(self, name: str, stated: int, found: int) -> None:
        if stated != found:
            self.report.fault(f"manifest.json: {name} is {stated}, the rows say {found}")

    def _sum(self, split: str) -> Counter[str]:
        total: Counter[str] = Counter()
        for (of, _), sums in self._sums.items():
            if of == split:
                total.update(sums)
        return total


def _key(text: str) -> int:
    return int(content_id(text.encode())[:16], 16)


def shape_fault(row: Any) -> str | None:
    """What is wrong with the form of a row, or None: its fields, and a mask of zeros for the prompt and ones for the answer."""
    if not isinstance(row, dict):
        return "not a JSON object"
    if not all(isinstance(row.get(name), str) for name in _TEXTS) or not all(type(row.get(name)) is int for name in _NUMBERS):
        return f"lacks one of {', '.join((*_TEXTS, *_NUMBERS))}"
    ids, mask = row.get("input_ids"), row.get("loss_mask")
    if not isinstance(ids, list) or not all(type(token) is int for token in ids):
        return "input_ids is not a list of whole numbers"
    zeros, ones = row["prompt_tokens"], row["completion_tokens"]
    if ones < 1 or mask != [0] * zeros + [1] * ones:
        return f"loss_mask is not {zeros} zeros and {ones} ones"
    if len(ids) != zeros + ones:
        return f"{len(ids)} token ids, but {zeros} + {ones} tokens"
    return None
