"""Where things lie on the host: one workspace, one folder per campaign.

```
WORKSPACE/
  code/draftmill-HASH.pyz          the delivered code
  secrets.json                     0600, environment values that no log may show
  server/                          the one server of this host: state, lock, leases, logs, forecasts of the jobs that use it
  campaigns/NAME/
    plan.json                      what the last run asked for
    prompts/DATASET.jsonl          prompts in work order;   DATASET.meta.json: where they came from
    journal/DATASET.jsonl          responses, append-only;  DATASET.lock: the one writer
    records/DATASET.jsonl          training rows of one data set: heads; DATASET.ids: token ids; DATASET.meta.json
    corpus/                        the merged corpus and its manifest
    jobs/TASK[/DATASET]/           spec, pid, log, heartbeat, result of a detached job
```
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Workspace:
    """The folder on the host below which everything of draftmill lies. `root` is absolute."""

    root: Path

    @classmethod
    def at(cls, text: str) -> Workspace:
        """The workspace named by a user: `~` is expanded and the path made absolute; nothing is created."""
        return cls(Path(text).expanduser().absolute())

    @property
    def code(self) -> Path:
        """Delivered zipapps."""
        return self.root / "code"

    @property
    def server(self) -> Path:
        """The server's folder: one server a workspace."""
        return self.root / "server"

    @property
    def secrets(self) -> Path:
        """Environment values that no log may show; mode 0600."""
        return self.root / "secrets.json"

    def campaign(self, name: str) -> CampaignFolder:
        """The folder of one campaign."""
        return CampaignFolder(self.root / "campaigns" / name)

    def resolve(self, text: str) -> Path:
        """A path of a configuration file: absolute or with `~` as it is, anything else below the workspace."""
        path = Path(text).expanduser()
        return path if path.is_absolute() else self.root / path


@dataclass(frozen=True)
class CampaignFolder:
    """The files of one campaign."""

    root: Path

    @property
    def plan(self) -> Path:
        """What the last run asked for."""
        return self.root / "plan.json"

    def prompts(self, dataset: str) -> Path:
        """Prompts of a data set, in work order."""
        return self.root / "prompts" / f"{dataset}.jsonl"

    def prompts_meta(self, dataset: str) -> Path:
        """Where the prompts came from, with counts."""
        return self.root / "prompts" / f"{dataset}.meta.json"

    def journal(self, dataset: str) -> Path:
        """Responses of a data set, append-only."""
        return self.root / "journal" / f"{dataset}.jsonl"

    def journal_lock(self, dataset: str) -> Path:
        """Held by the one writer of the journal."""
        return self.root / "journal" / f"{dataset}.lock"

    def records(self, dataset: str) -> Path:
        """Training rows of a data set."""
        return self.root / "records" / f"{dataset}.jsonl"

    def records_meta(self, dataset: str) -> Path:
        """Counts and hashes of the records file."""
        return self.root / "records" / f"{dataset}.meta.json"

    @property
    def corpus(self) -> Path:
        """The merged corpus."""
        return self.root / "corpus"

    def job(self, task: str, dataset: str | None) -> Path:
        """The folder of a detached job."""
        base = self.root / "jobs" / task
        return base / dataset if dataset else base
