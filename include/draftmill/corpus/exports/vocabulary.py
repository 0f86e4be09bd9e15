"""Token frequencies and the draft vocabulary.

A drafter predicts a small vocabulary: the tokens that the target generates most often. Both trainers describe it with two arrays,
`d2t` (int64, shape [draft]) and `t2d` (bool, shape [target]): the target id of draft token i is `i + d2t[i]`, and `t2d[j]` says whether
target token j is in the draft vocabulary. Draft tokens stand in rising order of their target ids.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from draftmill.corpus.record import Row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH_TOKENS = 1 << 18


@dataclass(frozen=True)
class Mapping:
    """A draft vocabulary. `coverage` is the fraction of counted tokens that it contains."""

    d2t: NDArray[np.int64]
    t2d: NDArray[np.bool_]
    coverage: float


def draft_mapping(counts: NDArray[np.int64], draft_size: int, always: Iterable[int]) -> Mapping:
    """The `draft_size` most frequent tokens, with the tokens of `always` among them.

    counts: shape [target vocabulary]. Ties go to the smaller id, and so does the padding where fewer tokens than `draft_size` occur.
    Raises ValueError where the draft vocabulary is larger than the target's, or too small for `always`.
    """
    import numpy as np

    target_size = len(counts)
    forced = sorted({token for token in always if 0 <= token < target_size})
    if not len(forced) <= draft_size <= target_size:
        raise ValueError(
            f"a draft vocabulary of {draft_size} does not fit {len(forced)} special tokens and a target vocabulary of {target_size}"
        )
    rank = counts.astype(np.int64).copy()
    rank[forced] = np.iinfo(np.int64).max
    picked = np.sort(np.argsort(-rank, kind="stable")[:draft_size])
    t2d = np.zeros(target_size, dtype=np.bool_)
    t2d[picked] = True
    total = int(counts.sum())
    return Mapping(picked - np.arange(draft_size), t2d, float(counts[picked].sum() / total) if total else 1.0)


class VocabularySink:
    """Counts the generated tokens (loss 1) of the training rows, and writes both trainers' files."""

    def __init__(self, folder: Path, draft_size: int | None, prompts: dict[str, Any]) -> None:
        import numpy as np

        self.folder = folder
        self.draft_size = draft_size
        self.always = [*prompts["special_token_ids"], *prompts["eos_token_ids"]]
        self.counts = np.zeros(prompts["vocab_size"], dtype=np.int64)
        self.hashes: dict[Path, str] = {}
        self._batch: list[NDArray[np.int32]] = []
        self._batch_tokens = 0
        self._mapping: Mapping | None = None
        self._notes: list[str] = []

    def __enter__(self) -> VocabularySink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._count()
            self._write()

    def add(self, row: Row) -> None:
        """Take the next row."""
        self._batch.append(row.output_ids)
        self._batch_tokens += row.head.completion_tokens
        if self._batch_tokens >= BATCH_TOKENS:
            self._count()

    def _count(self) -> None:
        if self._batch:
            import numpy as np

            self.counts += np.bincount(np.concatenate(self._batch), minlength=len(self.counts))
            self._batch, self._batch_tokens = [], 0

    def _write(self) -> None:
        """Write counts and mapping. Files that only torch can write are left out, with a note, on a host without it."""
        self.folder.mkdir(parents=True)
        import numpy as np

        np.save(self.folder / "token_counts.npy", self.counts)
        if self.draft_size is not None:
            if self.draft_size < len(self.counts):
                self._mapping = draft_mapping(self.counts, self.draft_size, self.always)
                np.save(self.folder / f"d2t-{self.draft_size}.npy", self._mapping.d2t)
                np.save(self.folder / f"t2d-{self.draft_size}.npy", self._mapping.t2d)
            else:
                self._notes.append(
                    f"no mapping: a draft vocabulary of {self.draft_size} holds the target's {len(self.counts)} tokens anyway"
                )
        self._write_torch_files()
        self._copy_into_arrow()

    def _write_torch_files(self) -> None:
        try:
            import torch
        except ImportError:
            self._notes.append("token_freq.pt and vocab_mapping.pt are left out: this host has no torch")
            return
        seen = self.counts.nonzero()[0]
        torch.save(dict(zip(seen.tolist(), self.counts[seen].tolist(), strict=True)), self.folder / "token_freq.pt")
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
            "target_size": len(self.counts),
            "distinct_tokens": int((self.counts > 0).sum()),
            "draft_size": len(self._mapping.d2t) if self._mapping else None,
            "coverage": round(self._mapping.coverage, 6) if self._mapping else None,
            "always_in": sorted(set(self.always)) if self._mapping else [],
            "notes": self._notes,
        }
