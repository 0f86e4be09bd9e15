"""What becomes of finished responses: quality policies and the shape of the corpus."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from draftmill.spec.base import Name, SafePath, Strict

KeepOrDrop = Literal["keep", "drop"]
Share = Annotated[float, Field(gt=0, le=1)]


class QualityPolicy(Strict):
    """What to do with responses of doubtful use. Every drop is counted by data set and reason; nothing is dropped silently."""

    empty: KeepOrDrop = Field("drop", description="Answers of control tokens only. Those without any token are always dropped.")
    truncated: KeepOrDrop = Field("keep", description="Answers cut at max_new_tokens; no end token is invented for them.")
    unclosed_reasoning: KeepOrDrop = Field("keep", description="Answers that end before </think>.")
    repetition: KeepOrDrop = Field("drop", description="Degenerate loops.")
    replacement_characters: KeepOrDrop = Field("keep", description="Answers that decode to U+FFFD, the length limit's own cut apart.")
    near_duplicates: KeepOrDrop = Field("keep", description="Answers nearly identical to an earlier one of the data set.")
    warn_dropped_fraction: float = Field(0.2, ge=0, le=1, description="Say so when more than this is dropped, or in doubt.")
    fail_dropped_fraction: float = Field(0.5, ge=0, le=1, description="Fail when more than this is dropped.")


class CorpusPolicy(Strict):
    """The shape of the merged corpus. Lengths are in tokens."""

    max_length: int | None = Field(None, gt=0, description="Rows longer than this are dropped and counted, never cut.")
    held_out_fraction: float = Field(0.0, ge=0, lt=1)
    draft_vocab_size: int | None = Field(None, gt=0)
    weights: dict[Name, Share] = Field(
        default_factory=dict, description="The share of a data set's rows to take, a seeded sample; data sets not named are taken whole."
    )
    shard_rows: int = Field(0, ge=0, description="Rows a file; 0 writes one file. SpecForge reads one file.")
    compress: bool = Field(False, description="Zstandard. Neither trainer reads compressed rows; for storage and transport.")
    acceptance: Literal["verify", "installed", "required"] = Field(
        "installed", description="verify: our own checks; installed: also the trainers' loaders that the host has; required: all of them."
    )
    trainers_python: tuple[SafePath, ...] = Field(
        (), description="Interpreters that have the trainers installed; none given means the one that runs draftmill."
    )
    exports: tuple[Literal["jsonl", "arrow", "conversations"], ...] = ("jsonl",)
