"""Token frequencies and the draft vocabulary.

A drafter predicts a small vocabulary: the tokens that the target generates most often. Both trainers describe it with two arrays,
`d2t` (int64, shape [draft]) and `t2d` (bool, shape [target]): the target id of draft token i is `i + d2t[i]`, and `t2d[j]` says whether
target token j is in the draft vocabulary. Draft tokens stand in rising order of their target ids.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from draftmill.corpus.record import Row
from draftmill.corpus.token_counts import TokenCounts
from draftmill.errors import PermanentError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from draftmill.corpus.token_counts import Counts


@dataclass(frozen=True)
class Mapping:
    """A draft vocabulary. `coverage` is the fraction of counted tokens that it contains."""

    d2t: NDArray[np.int64]
    t2d: NDArray[np.bool_]
    coverage: float


def draft_mapping(counts: Counts, draft_size: int, always: list[int]) -> Mapping:
    """The `draft_size` most frequent tokens, with the tokens of `always` among them.

    counts: shape [target vocabulary]. Ties go to the smaller id, and so does the padding where fewer tokens than `draft_size` occur.
    PermanentError where the draft vocabulary is larger than the target's, or too small for `always`.
    """
    import numpy as np

    target_size = len(counts)
    if not len(always) <= draft_size <= target_size:
        raise PermanentError(
            f"corpus.draft_vocab_size: {draft_size} must be between {len(always)} (special and end tokens) and {target_size} (the model's)"
        )
    rank = counts.copy()
    rank[always] = np.iinfo(np.int64).max
    picked = np.sort(np.argsort(-rank, kind="stable")[:draft_size])
    t2d = np.zeros(target_size, dtype=np.bool_)
    t2d[picked] = True
    total = int(counts.sum())
    return Mapping(picked - np.arange(draft_size), t2d, float(counts[picked].sum() / total) if total else 1.0)


class VocabularySink:
    """Counts the generated tokens (loss 1) of the training rows, and writes both trainers' files."""

    def __init__(self, folder: Path, draft_size: int | None, prompts: dict[str, Any]) -> None:
        self.folder = folder
        self.draft_size = draft_size
        self.target_size: int = prompts["vocab_size"]
        named = {*prompts["special_token_ids"], *prompts["eos_token_ids"]}
        # Published tokenizers name a few tokens that their model has no rows for.
        self.always = sorted(token for token in named if token < self.target_size)
        self.hashes: dict[Path, str] = {}
        self._counts = TokenCounts(self.target_size)
        self._mapping: Mapping | None = None
        self._notes: list[str] = []

    def __enter__(self) -> VocabularySink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._write()

    def add(self, row: Row) -> None:
        """Take the next row."""
        self._counts.add(row.output_ids)

    def _write(self) -> None:
        import numpy as np

        self.folder.mkdir(parents=True)
        counts = self._counts.total()
        np.save(self.folder / "token_counts.npy", counts)
        if self.draft_size is not None and self.draft_size >= self.target_size:
            self._notes.append(f"no mapping: a draft vocabulary of {self.draft_size} holds all {self.target_size} tokens of the target")
        elif self.draft_size is not None:
            self._mapping = draft_mapping(counts, self.draft_size, self.always)
            np.save(self.folder / f"d2t-{self.draft_size}.npy", self._mapping.d2t)
            np.save(self.folder / f"t2d-{self.draft_size}.npy", self._mapping.t2d)
        self._write_torch_files(counts)
        self._copy_into_arrow()

    def _write_torch_files(self, counts: Counts) -> None:
        """Files that only torch can write; a host without it leaves them out, with a note."""
        try:
            import torch
        except ImportError:
            self._notes.append("token_freq.pt and vocab_mapping.pt are left out: this host has no torch")
            return
        seen = counts.nonzero()[0]
        torch.save(dict(zip(seen.tolist(), counts[seen].tolist(), strict=True)), self.folder / "token_freq.pt")
        if self._mapping is not None:
            tensors = {"d2t": torch.from_numpy(self._mapping.d2t), "t2d": torch.from_numpy(self._mapping.t2d)}
            torch.save(tensors, self.folder / "vocab_mapping.pt")

    def _copy_into_arrow(self) -> None:
        """speculators looks for these beside the Arrow files."""
        arrow = self.folder.parent / "arrow" / "train"
        if arrow.is_dir():
            for path in self.folder.iterdir():
                if path.name == "token_freq.pt" or path.name.startswith(("d2t-", "t2d-")):
                    shutil.copyfile(path, arrow / path.name)

    def describe(self) -> dict[str, Any]:
        """For the manifest: sizes, coverage, and what was left out."""
        return {
            "target_size": self.target_size,
            "distinct_tokens": int((self._counts.total() > 0).sum()),
            "draft_size": len(self._mapping.d2t) if self._mapping else None,
            "coverage": round(self._mapping.coverage, 6) if self._mapping else None,
            "always_in": self.always if self._mapping else [],
            "notes": self._notes,
        }
