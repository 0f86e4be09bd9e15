"""What is said between Airflow and the host: requests on standard input, answers on standard output, both JSON."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from draftmill.spec.base import Name
from draftmill.spec.plan import Plan

JobState = Literal["absent", "running", "done", "failed", "stopped", "lost"]
"""absent: never started here. running: its process lives. done: exit code 0. failed: ended with an error. stopped: ended on request.
lost: its process is gone and left no result (killed, rebooted, folder wiped)."""


class Message(BaseModel):
    """Base of requests and answers. Unknown keys are errors, so that two versions of the code never half understand each other."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class JobKey(Message):
    """What a job is found by. `task` is the step's verb."""

    campaign: Name
    task: Name
    dataset: Name | None = None

    def __str__(self) -> str:
        return "/".join(part for part in (self.campaign, self.task, self.dataset) if part)


class StartRequest(Message):
    """Start the job, or attach where it already runs with the same spec.

    `secrets` reach the environment of the job, and no file but one of mode 0600.
    """

    workspace: str
    key: JobKey
    plan: Plan
    secrets: dict[str, str] = Field(default_factory=dict)
    asker: str = Field("", description="Who starts or attaches, such as one try of one task: from now on the job is theirs to stop.")


class StatusRequest(Message):
    """Ask for a job's state; answer at the latest after `wait_s`, or sooner when state, progress or log have changed.

    Each attempt has its own log. Pass back `attempt` with `log_offset`: where a newer attempt runs by then, its log is told from the start.
    """

    workspace: str
    key: JobKey
    wait_s: float = Field(0, ge=0, le=300)
    quiet_s: float = Field(0, ge=0, le=300, description="A change of progress or log alone is not answered sooner than this.")
    log_offset: int | None = Field(
        0, ge=0, description="Bytes of the log the asker has seen; the host remembers them. None: what it remembers of this attempt."
    )
    seen: int = Field(0, ge=0, description="Without log_offset: bytes that were seen at least, whatever the host remembers.")
    attempt: int | None = Field(None, ge=0, description="The attempt that log_offset or seen belongs to. None: the one that runs.")
    max_log_bytes: int = Field(64 * 1024, ge=1024)


class StopRequest(Message):
    """Stop the job: TERM to its process group, KILL after the grace, then a check that nothing is left."""

    workspace: str
    key: JobKey
    grace_s: float = Field(60, ge=0)
    asker: str | None = Field(None, description="Stop only what this asker was the last to start or attach to. None: whoever it was.")


class JobStatus(Message):
    """A job's state as the host sees it. `log` is whole lines of valid UTF-8, split by \\n alone; the next question starts at `log_offset`.

    Once the job is over, `more` says that its log goes on: ask again at once until it is False.
    """

    key: JobKey
    state: JobState
    spec: str | None = Field(None, description="Digest of what the job was started with.")
    attempt: int = Field(0, description="How many times a process was started for this key.")
    attached: bool = Field(False, description="The start request found it running.")
    pid: int | None = None
    started_at: float | None = None
    exit_code: int | None = None
    error: str | None = Field(None, description="One sentence, where the job failed, was lost, or left processes behind.")
    result: dict[str, Any] | None = None
    progress: dict[str, Any] | None = Field(None, description="The last progress: `message`, `at` (epoch seconds) and the step's numbers.")
    heartbeat_at: float | None = None
    log: str = ""
    log_offset: int = 0
    log_skipped_bytes: int = Field(0, description="Bytes left out: the log outran the asker, or a line was too long.")
    more: bool = Field(False, description="There is more log to fetch without waiting.")
