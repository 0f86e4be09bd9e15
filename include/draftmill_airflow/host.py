"""What an Airflow SSH connection says of a host.

The connection is an ordinary one of the SSH provider. Its extra field must hold `host_key` (no other way of trusting a host is
accepted) and the key `draftmill`:

    {"key_file": "/opt/airflow/keys/gpu_host",
     "host_key": "ssh-ed25519 AAAA...",
     "draftmill": {"python": "/opt/sglang/bin/python", "workspace": "~/draftmill", "secrets": {"HF_TOKEN": "..."}}}
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from draftmill_airflow.errors import HostSettingsError

if TYPE_CHECKING:
    from airflow.sdk import Connection

_STEP = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._+@-]+"
"""One name in a path; hidden folders are names like any other, `.` and `..` are not."""
_UNSAFE = ("no_host_key_check", "ignore_hostkey_verification", "allow_host_key_change")


# Both paths become part of a command line on the host. They are quoted there; plain characters keep them readable in a process
# list and out of reach of a shell that quotes in another way.
def _python(text: str) -> str:
    if not re.fullmatch(rf"(?:/{_STEP})+", text):
        raise ValueError("must be an absolute path of letters, digits and . _ + @ - only, such as /opt/sglang/bin/python")
    return text


def _workspace(text: str) -> str:
    if not re.fullmatch(rf"(?:~|/{_STEP})(?:/{_STEP})*", text):
        raise ValueError("must be ~/FOLDER or an absolute path, of letters, digits and . _ + @ - only")
    return text


def _variables(value: dict[str, str]) -> dict[str, str]:
    if not all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) for name in value):
        raise ValueError("must have names of environment variables as its keys")
    return value


class DraftmillExtra(BaseModel):
    """The connection's extra key `draftmill`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    python: Annotated[str, AfterValidator(_python)] = Field(description="The Python that serves the model, as a path on the host.")
    workspace: Annotated[str, AfterValidator(_workspace)] = Field("~/draftmill", description="Where everything of draftmill lies there.")
    secrets: Annotated[dict[str, str], AfterValidator(_variables)] = Field(
        default_factory=dict, description="Environment of the jobs that no log may show."
    )


@dataclass(frozen=True)
class Host:
    """A host as draftmill uses it. `address` is for people: user, name and port. `secrets` are shown nowhere."""

    conn_id: str
    address: str
    python: str
    workspace: str
    secrets: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_connection(cls, connection: Connection) -> Host:
        """Check what the connection says. HostSettingsError names the connection, the key and the way to mend it."""
        conn_id = connection.conn_id or ""
        if connection.conn_type != "ssh" or not connection.host:
            raise HostSettingsError(f"connection {conn_id}: it must be of type ssh and name a host")
        extra = connection.extra_dejson
        _require_strict_host_key(conn_id, connection.host, extra)
        settings = _settings(conn_id, extra.get("draftmill"))
        user = f"{connection.login}@" if connection.login else ""
        port = f":{connection.port}" if connection.port not in (None, 22) else ""
        return cls(conn_id, f"{user}{connection.host}{port}", settings.python, settings.workspace, settings.secrets)

    @classmethod
    def load(cls, conn_id: str) -> Host:
        """The host of an Airflow connection, for code that runs in a task."""
        from airflow.sdk import BaseHook
        from airflow.sdk.exceptions import AirflowNotFoundException
        from airflow.sdk.log import mask_secret

        try:
            connection = BaseHook.get_connection(conn_id)
        except AirflowNotFoundException:
            raise _undefined(conn_id) from None
        host = cls.from_connection(connection)
        for secret in host.secrets.values():
            mask_secret(secret)
        return host

    @classmethod
    async def aload(cls, conn_id: str) -> Host:
        """`load`, for code that runs in the triggerer."""
        from airflow.sdk import BaseHook
        from airflow.sdk.exceptions import AirflowNotFoundException
        from airflow.sdk.log import amask_secret

        try:
            connection = await BaseHook.aget_connection(conn_id)
        except AirflowNotFoundException:
            raise _undefined(conn_id) from None
        host = cls.from_connection(connection)
        for secret in host.secrets.values():
            await amask_secret(secret)
        return host


def _undefined(conn_id: str) -> HostSettingsError:
    return HostSettingsError(f"connection {conn_id} is not defined; set AIRFLOW_CONN_{conn_id.upper()} or add it under Admin, Connections")


def _require_strict_host_key(conn_id: str, name: str, extra: dict[str, Any]) -> None:
    for key in _UNSAFE:
        if str(extra.get(key, "false")).lower() != "false":
            raise HostSettingsError(
                f"connection {conn_id}: extra key {key} lets any machine pose as {name}; remove it and give host_key instead"
            )
    if not str(extra.get("host_key") or "").strip():
        raise HostSettingsError(
            f"connection {conn_id}: extra key host_key is missing; add what `ssh-keyscan {name}` prints after the host's name, "
            "for example 'ssh-ed25519 AAAA...', once you have compared it with the host's own"
        )


def _settings(conn_id: str, value: object) -> DraftmillExtra:
    if not isinstance(value, dict):
        raise HostSettingsError(
            f"connection {conn_id}: extra key draftmill is missing; add for example "
            '"draftmill": {"python": "/opt/sglang/bin/python", "workspace": "~/draftmill"}'
        )
    try:
        return DraftmillExtra.model_validate(value)
    except ValidationError as error:
        # Field and reason only: the value may be a secret.
        faults = [f"{'.'.join(map(str, fault['loc']))} {fault['msg'].removeprefix('Value error, ')}" for fault in error.errors()]
        raise HostSettingsError(f"connection {conn_id}: extra key draftmill: {'; '.join(faults)}") from None
