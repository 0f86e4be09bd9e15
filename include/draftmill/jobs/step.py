"""What a step is given and what it gives back. Every verb of the DAG is a step, by hand and in a detached job alike."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from draftmill.errors import StoppedError
from draftmill.layout import CampaignFolder, Workspace
from draftmill.spec.plan import DatasetPlan, Plan


class ProgressSink(Protocol):
    """Takes progress for people (terminal or log) and for the heartbeat."""

    def __call__(self, message: str, **numbers: float | int | str | None) -> None:
        """`message` is a line for people; `numbers` are the same facts for machines.

        Known names: done, in_flight, tokens, tokens_per_s, eta_s, errors. A message without numbers is an event, which every log shows.
        """


@dataclass
class StepContext:
    """Everything a step may use. `stop` is set on SIGTERM or SIGINT; a step looks at it between pieces of work."""

    plan: Plan
    workspace: Workspace
    progress: ProgressSink
    dataset_name: str | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def folder(self) -> CampaignFolder:
        """The campaign's folder."""
        return self.workspace.campaign(self.plan.campaign)

    @property
    def dataset(self) -> DatasetPlan:
        """The data set this step works on; KeyError where the step has none."""
        return self.plan.dataset(self.dataset_name or "")

    def check_stop(self) -> None:
        """Raise StoppedError where a stop was asked for."""
        if self.stop.is_set():
            raise StoppedError("stopped on request; what was finished is kept and the next start continues")


Step = Callable[[StepContext], dict[str, Any]]
"""Does the work and returns a small JSON-ready result. Raises a DraftmillError to end with its exit code."""


@dataclass(frozen=True)
class StepEntry:
    """A verb: where its function lives, whether it works on one data set, and its line in the help.

    chooses_prompts: what it makes of a data set depends on which data sets come before it.
    """

    target: str
    per_dataset: bool
    help: str
    chooses_prompts: bool = False

    def load(self) -> Step:
        """Import the function; done late, so that light verbs start fast."""
        module, _, name = self.target.partition(":")
        function: Step = getattr(importlib.import_module(module), name)
        return function


STEPS: dict[str, StepEntry] = {
    "survey": StepEntry("draftmill.generation.survey:run", False, "what is on disk for each data set, and tokens left"),
    "preflight": StepEntry("draftmill.serving.preflight:run", False, "check this host for the campaign, in seconds"),
    "prepare": StepEntry("draftmill.prompts.prepare:run", True, "read a source and render its prompts to token ids", chooses_prompts=True),
    "launch": StepEntry("draftmill.serving.step:launch", False, "bring the server up and wait until it is ready"),
    "generate": StepEntry("draftmill.generation.step:run", True, "generate answers under the token budget"),
    "tokenize": StepEntry("draftmill.corpus.tokenize:run", True, "turn prompts and responses into token-exact records"),
    "merge": StepEntry("draftmill.corpus.merge:run", False, "merge all records into the corpus"),
    "accept": StepEntry("draftmill.corpus.accept:run", False, "check the corpus as its readers will"),
    "stop-server": StepEntry("draftmill.serving.step:stop", False, "stop the server and verify that nothing is left"),
}
