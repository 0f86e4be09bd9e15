"""What steps return through XCom: small, documented values. Tokens are completion tokens unless named otherwise."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Outcome = Literal["budget_reached", "exhausted", "max_samples"]


class Result(BaseModel):
    """Base of step results."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DatasetSurvey(Result):
    """What is on disk for one data set, against the plan."""

    name: str
    budget_tokens: int
    on_disk_tokens: int = Field(description="Completion tokens in the journal, older rows included.")
    left_tokens: int = Field(description="Tokens still to generate; 0 where the budget, the samples or the prompts are used up.")
    responses: int
    prompts: int | None = Field(None, description="Prompts prepared; None where there is no prompts file yet.")
    met: bool = Field(description="Nothing is left to do.")
    outcome: Outcome | None = Field(None, description="Why nothing is left; None where something is.")
    unreadable: int = Field(0, description="Journal lines that cannot be read.")
    tokens_per_s: float | None = Field(None, description="Rate of the last generate job of this data set; None where none was measured.")


class SurveyResult(Result):
    """What `survey` found. Data sets are in the plan's order; `totals` sums their numbers."""

    campaign: str
    datasets: list[DatasetSurvey]
    totals: dict[str, int] = Field(default_factory=dict)

    @property
    def left_tokens(self) -> int:
        """Tokens still to generate, over all data sets."""
        return sum(entry.left_tokens for entry in self.datasets)


class PrepareResult(Result):
    """What `prepare` made. rows_read = rows_used + sum(skipped.values())."""

    dataset: str
    prompts: int
    rows_read: int
    rows_used: int
    skipped: dict[str, int] = Field(default_factory=dict, description="Rows not used, by reason; duplicates among them.")
    reused: bool = Field(False, description="The prompts file was already there for the same request.")
    path: str


class LaunchResult(Result):
    """What `launch` found. Where nothing is left to generate, `needed` is false and nothing was started. Sizes are in tokens."""

    needed: bool
    version: str | None = None
    model_path: str | None = None
    served_model_name: str | None = None
    kv_capacity_tokens: int | None = None
    context_length: int | None = None
    fingerprint: str | None = None
    incarnation: int | None = None
    seconds: float = Field(0.0, description="Until the server was ready; near 0 where it ran already.")


class StopServerResult(Result):
    """What `stop-server` did. Where it fails, it says so by an error and gives no result."""

    stopped: bool
    reason: str = Field(description="Why it was stopped or left running, for people.")
    seconds: float = 0.0


class GenerateResult(Result):
    """What `generate` did. Totals are of the journal file, `new_*` of this run."""

    dataset: str
    budget_tokens: int
    completion_tokens: int
    prompt_tokens: int
    responses: int
    finish_reasons: dict[str, int]
    outcome: Outcome
    resumed_tokens: int = Field(description="Tokens that were on disk when this run began.")
    new_tokens: int
    new_responses: int
    skipped: dict[str, int] = Field(default_factory=dict, description="Prompts that can never be sent, by reason.")
    failures: dict[str, int] = Field(default_factory=dict, description="Failed attempts, by kind; each was retried or given up.")
    seconds: float
    tokens_per_s: float
    server_version: str | None = None
    path: str


class TokenizeResult(Result):
    """What `tokenize` made. rows_in = rows_kept + sum(dropped.values())."""

    dataset: str
    rows_in: int
    rows_kept: int
    dropped: dict[str, int] = Field(default_factory=dict)
    loss_tokens: int
    total_tokens: int
    path: str


class MergeResult(Result):
    """What `merge` made. Paths are on the host; `train` is the JSONL that trainers read."""

    campaign: str
    train: str
    manifest: str
    manifest_sha256: str
    rows: int
    held_out_rows: int = 0
    loss_tokens: int
    total_tokens: int
    datasets: dict[str, int] = Field(description="Rows kept, by data set.")
    reused: bool = Field(False, description="Nothing had changed; the corpus on disk was kept.")


class AcceptResult(Result):
    """What `accept` found: the corpus is what its manifest says, and every loader asked for takes all of it."""

    campaign: str
    corpus: str = Field(description="The version that was checked; `corpus` of the campaign may point to a later one by now.")
    manifest_sha256: str
    rows: int
    held_out_rows: int
    loss_tokens: int
    total_tokens: int
    trainers: dict[str, str] = Field(default_factory=dict, description="What each trainer's own loader said, or why it was not asked.")
