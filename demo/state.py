"""Where the demo keeps everything: one folder, `.demo` in the repository, or the one that DRAFTMILL_DEMO_DIR names.

```
.demo/
  host/          the "GPU machine": the workspace (models, samples, campaigns, server) and the home folder of its user
  ssh/           keys and port of the loopback SSH host
  config/        the configuration folder of this demo
  airflow/       AIRFLOW_HOME: database, logs
  logs/          output of what the demo started
  secrets.json   0600, made once
  processes.json what was started and is to be stopped
  run.json       the run that was triggered last, and what was on disk before it
  report.json    what the last finished run did
```
"""

from __future__ import annotations

import os
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path

from draftmill.files import read_json, write_json
from draftmill.layout import CampaignFolder, Workspace

ROOT = Path(__file__).resolve().parent.parent
CAMPAIGN = "demo"


@dataclass(frozen=True)
class Demo:
    """The files of one demo. `root` is absolute."""

    root: Path

    @classmethod
    def here(cls) -> Demo:
        """The demo of this repository."""
        return cls(Path(os.environ.get("DRAFTMILL_DEMO_DIR") or ROOT / ".demo").absolute())

    @property
    def host(self) -> Path:
        """The workspace on the demo's host."""
        return self.root / "host"

    @property
    def home(self) -> Path:
        """The home folder of the host's user."""
        return self.host / "home"

    @property
    def ssh(self) -> Path:
        """Keys and port of the SSH host."""
        return self.root / "ssh"

    @property
    def config(self) -> Path:
        """The configuration folder."""
        return self.root / "config"

    @property
    def airflow(self) -> Path:
        """AIRFLOW_HOME."""
        return self.root / "airflow"

    @property
    def logs(self) -> Path:
        """Output of what the demo started."""
        return self.root / "logs"

    @property
    def processes(self) -> Path:
        """What was started."""
        return self.root / "processes.json"

    @property
    def run(self) -> Path:
        """The last run that was triggered."""
        return self.root / "run.json"

    @property
    def report(self) -> Path:
        """What the last finished run did."""
        return self.root / "report.json"

    @property
    def workspace(self) -> Workspace:
        """The workspace as draftmill sees it."""
        return Workspace(self.host)

    @property
    def campaign(self) -> CampaignFolder:
        """The campaign's files on the host."""
        return self.workspace.campaign(CAMPAIGN)

    def secret(self, name: str) -> str:
        """A random secret under this name, made at the first call and kept in a file that only its owner can read."""
        path = self.root / "secrets.json"
        known: dict[str, str] = read_json(path) or {}
        if name not in known:
            known[name] = secrets.token_urlsafe(32)
            write_json(path, known, mode=0o600)
        return known[name]

    def relative(self, path: Path) -> str:
        """`path` as people and the report see it: relative to the repository."""
        return os.path.relpath(path, ROOT)


def sglang_python() -> Path:
    """The Python that serves the model: DRAFTMILL_SGLANG_PYTHON, or the one that `make setup` made. Exits where there is none."""
    path = Path(os.environ.get("DRAFTMILL_SGLANG_PYTHON") or ROOT / ".venv-sglang" / "bin" / "python")
    if not path.exists():
        sys.exit(f"The SGLang environment is missing ({path} does not exist); run `make setup` first.")
    return path
