"""What becomes of finished responses: quality policies and the shape of the corpus."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from draftmill.spec.base import Name, Strict

KeepOrDrop = Literal["keep", "drop"]


class QualityPolicy(Strict):
    """What to do with responses of doubtful use. Every drop is counted by data set and reason; nothing is dropped silently."""

    empty: KeepOrDrop = Field("drop", description="Answers of control tokens only. Those without any token are always dropped.")
    truncated: KeepOrDrop = Field("keep", description="Answers cut at max_new_tokens; no end token is invented for them.")
    unclosed_reasoning: KeepOrDrop = Field("keep", description="Answers that end before </think>.")
    repetition: KeepOrDrop = Field("drop", description="Degenerate loops.")
    replacement_characters: KeepOrDrop = "keep"
    near_duplicates: KeepOrDrop = "keep"
    warn_dropped_fraction: float = Field(0.2, ge=0, le=1)
    fail_dropped_fraction: float = Field(0.5, ge=0, le=1)


class CorpusPolicy(Strict):
    """The shape of the merged corpus. Lengths are in tokens."""

    max_length: int | None = Field(None, gt=0, description="Rows longer than this are dropped and counted, never cut.")
    held_out_fraction: float = Field(0.0, ge=0, lt=1)
    draft_vocab_size: int | None = Field(None, gt=0)
    weights: dict[Name, float] = Field(default_factory=dict)
    shard_rows: int = Field(0, ge=0, description="0 writes one file.")
    compress: bool = False
    acceptance: Literal["verify", "installed", "required"] = Field(
        "installed", description="verify: our own checks; installed: also the trainers' loaders that the host has; required: all of them."
    )
    exports: tuple[Literal["jsonl", "arrow", "conversations"], ...] = ("jsonl",)
