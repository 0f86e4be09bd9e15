"""Checks that every export says what the JSONL rows say."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftmill.corpus.checks.read import arrow_rows, lines, read_rows
from draftmill.corpus.checks.report import Report

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Counts = NDArray[np.int64]


def check_arrow(folder: Path, split: str, report: Report) -> None:
    """The Arrow rows of a split are its JSONL rows, in the same order."""
    arrow = folder / "arrow" / split
    if not arrow.is_dir():
        return
    for number, (mine, theirs) in enumerate(zip_longest(arrow_rows(arrow), read_rows(folder, split))):
        if mine is None or theirs is None:
            report.fault(f"arrow/{split}: has another number of rows than {split}.jsonl")
            return
        ids, mask, length = mine
        row = theirs[1]
        if length != len(row["input_ids"]) or ids.tolist() != row["input_ids"] or mask.tolist() != row["loss_mask"]:
            report.fault(f"arrow/{split}: row {number} is not the row at {theirs[0]}")
            return


def check_conversations(folder: Path, split: str, report: Report) -> None:
    """There is one conversation a row, with its id, in the same order."""
    import orjson

    found = [path for path in (folder / "conversations").glob(f"{split}.jsonl*") if path.is_file()]
    if not found:
        return
    texts = (orjson.loads(line)["id"] for line in lines(found[0]))
    ids = (row["id"] for _, row in read_rows(folder, split))
    if any(mine != theirs for mine, theirs in zip_longest(texts, ids)):
        report.fault(f"conversations/{split}: its rows are not those of {split}.jsonl")


def check_vocabulary(folder: Path, manifest: dict[str, Any], counts: Counts, report: Report) -> None:
    """The stored token counts are those of the rows, and the mapping is one: sizes, order, special tokens, coverage."""
    import numpy as np

    stored = np.load(folder / "vocabulary" / "token_counts.npy")
    if not np.array_equal(stored, counts):
        report.fault("vocabulary/token_counts.npy: is not the count of the generated tokens of the training rows")
    stated = manifest["exports"]["vocabulary"]
    size = stated["draft_size"]
    if size is None:
        return
    d2t, t2d = (np.load(folder / "vocabulary" / f"{name}-{size}.npy") for name in ("d2t", "t2d"))
    picked = d2t + np.arange(size)
    if t2d.shape != counts.shape or not np.array_equal(np.flatnonzero(t2d), picked):
        report.fault("vocabulary: d2t and t2d do not describe the same tokens in rising order")
    elif not t2d[stated["always_in"]].all():
        report.fault("vocabulary: a special or end token is not in the draft vocabulary")
    elif round(float(counts[picked].sum() / counts.sum()), 6) != stated["coverage"]:
        report.fault("manifest.json: exports.vocabulary.coverage is not what the counts give")
    _check_torch_files(folder / "vocabulary", counts, d2t, t2d, report)


def _check_torch_files(folder: Path, counts: Counts, d2t: Counts, t2d: Counts, report: Report) -> None:
    """Where the files exist and torch can read them here."""
    import numpy as np

    try:
        import torch
    except ImportError:
        return
    if (folder / "token_freq.pt").is_file():
        seen = np.flatnonzero(counts)
        if torch.load(folder / "token_freq.pt", weights_only=True) != dict(zip(seen.tolist(), counts[seen].tolist(), strict=True)):
            report.fault("vocabulary/token_freq.pt: is not the count of the generated tokens")
    if (folder / "vocab_mapping.pt").is_file():
        mapping = torch.load(folder / "vocab_mapping.pt", weights_only=True)
        if not np.array_equal(mapping["d2t"].numpy(), d2t) or not np.array_equal(mapping["t2d"].numpy(), t2d):
            report.fault("vocabulary/vocab_mapping.pt: differs from d2t and t2d")
