"""The server's folder and the state its supervisor keeps in it.

```
WORKSPACE/server/
  admission.lock         held for the moment in which somebody decides: join this server, replace it, or start one
  supervisor.lock        held by the one supervisor, which is the one writer of state.json
  request.json           0600, the profile the supervisor was started for
  state.json             0600, what there is: state, address, key, capacity, processes, restarts, last diagnosis
  config.yaml            0600, what SGLang was started with, its key included
  leases/                one locked file for each holder
  wedged/N.json          a holder's word that incarnation N generates nothing
  supervisor/            the supervisor as a detached process: pid, log, result
  logs/server-N.log      0600, SGLang's own output; it prints its key there
  help-*.json            what a build answered to --help
```
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from draftmill.files import read_json, write_json
from draftmill.layout import Workspace
from draftmill.serving.endpoint import Endpoint
from draftmill.spec.server import NamedServer

ServerStateName = Literal["starting", "ready", "restarting", "stopping", "failed", "stopped"]
Kind = Literal["permanent", "temporary"]


@dataclass(frozen=True)
class ServerFolder:
    """Paths below `WORKSPACE/server`."""

    root: Path

    @classmethod
    def of(cls, workspace: Workspace) -> ServerFolder:
        """The one server folder of a workspace."""
        return cls(workspace.server)

    @property
    def admission(self) -> Path:
        """Held while somebody decides whether to join, replace or start."""
        return self.root / "admission.lock"

    @property
    def lock(self) -> Path:
        """Held by the supervisor."""
        return self.root / "supervisor.lock"

    @property
    def request(self) -> Path:
        """The profile the supervisor was started for."""
        return self.root / "request.json"

    @property
    def state(self) -> Path:
        """What there is."""
        return self.root / "state.json"

    @property
    def config(self) -> Path:
        """What SGLang was started with."""
        return self.root / "config.yaml"

    @property
    def leases(self) -> Path:
        """One locked file for each holder."""
        return self.root / "leases"

    @property
    def supervisor(self) -> Path:
        """The supervisor as a detached process."""
        return self.root / "supervisor"

    @property
    def reports(self) -> Path:
        """What holders of leases report."""
        return self.root / "wedged"

    def wedged(self, incarnation: int) -> Path:
        """A holder's word that this incarnation generates nothing."""
        return self.reports / f"{incarnation}.json"

    @property
    def logs(self) -> Path:
        """SGLang's output, one file for each incarnation."""
        return self.root / "logs"

    def log(self, incarnation: int) -> Path:
        """SGLang's output."""
        return self.logs / f"server-{incarnation}.log"


class Record(BaseModel):
    """Base of what is kept in the folder. Unknown keys are ignored: a newer draftmill may have written them."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Diagnosed(Record):
    """Why a server ended. `sentence` is for people; `kind` says whether a retry helps."""

    cause: str
    sentence: str
    advice: str
    kind: Kind
    incarnation: int
    at: float


class ProcessRecord(Record):
    """A process, known again by its start time in clock ticks after boot."""

    pid: int
    start_ticks: int


class ServerState(Record):
    """state.json. Times are Unix seconds, sizes tokens.

    `request` is the digest of the profile; `supervisor` names the run of the supervisor that wrote this; `processes` are all that ever
    belonged to this incarnation and still lived when this was written; `gpu_used_before` is memory in bytes by GPU index.
    """

    state: ServerStateName = "starting"
    message: str = ""
    server: str = ""
    request: str = ""
    supervisor: str = ""
    supervisor_pid: int = 0
    incarnation: int = 0
    boot_id: str = ""
    mark: str = ""
    leader: ProcessRecord | None = None
    processes: list[ProcessRecord] = Field(default_factory=list)
    base_url: str = ""
    port: int = 0
    api_key: str | None = Field(None, repr=False)
    model_path: str = ""
    served_model_name: str = ""
    version: str = ""
    arguments: dict[str, str | int | float | bool | list[str | int | float | bool]] = Field(default_factory=dict)
    fingerprint: str = ""
    kv_capacity_tokens: int | None = None
    context_length: int | None = None
    max_req_input_len: int | None = None
    vocab_size: int | None = None
    gpu_used_before: dict[str, int] = Field(default_factory=dict)
    log: str = ""
    launched_at: float = 0
    ready_at: float | None = None
    restarts: int = 0
    last: Diagnosed | None = None

    def endpoint(self) -> Endpoint:
        """What a holder of a lease is told."""
        return Endpoint(
            base_url=self.base_url,
            api_key=self.api_key,
            model_path=self.model_path,
            served_model_name=self.served_model_name,
            version=self.version,
            fingerprint=self.fingerprint,
            incarnation=self.incarnation,
            kv_capacity_tokens=self.kv_capacity_tokens,
            context_length=self.context_length,
            max_req_input_len=self.max_req_input_len,
            vocab_size=self.vocab_size,
        )


class ServerRequest(Record):
    """request.json: what the supervisor is to run."""

    server: NamedServer
    digest: str


def request_digest(server: NamedServer) -> str:
    """16 hex characters for a profile under its name. The description decides nothing and is left out."""
    profile = server.profile.model_dump(mode="json", exclude={"description"})
    return hashlib.sha256(orjson.dumps([server.name, profile], option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def read_state(folder: ServerFolder) -> ServerState | None:
    """The last state written, or None where there never was a server here (or the file is of an unreadable layout)."""
    value = read_json(folder.state)
    try:
        return None if value is None else ServerState.model_validate(value)
    except ValidationError:
        return None


def write_state(folder: ServerFolder, state: ServerState) -> None:
    """Replace state.json. Only the holder of supervisor.lock may."""
    write_json(folder.state, state.model_dump(mode="json"), 0o600)


def read_request(folder: ServerFolder) -> ServerRequest | None:
    """The request the supervisor is to run, or None."""
    value = read_json(folder.request)
    # Through JSON, so that lists are accepted for tuples while types stay strict.
    return None if value is None else ServerRequest.model_validate_json(orjson.dumps(value))


def write_request(folder: ServerFolder, server: NamedServer) -> ServerRequest:
    """Say what the next supervisor is to run."""
    request = ServerRequest(server=server, digest=request_digest(server))
    write_json(folder.request, request.model_dump(mode="json"), 0o600)
    return request
