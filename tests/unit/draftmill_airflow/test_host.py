"""What a connection may say of a host, and the sentence for what it may not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk import Connection

from draftmill_airflow.errors import HostSettingsError
from draftmill_airflow.host import Host

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ"
SECRET = "hf_nobody_may_see_this"


def connection(
    draftmill: object = None, conn_type: str = "ssh", host: str | None = "gpu1", port: int | None = None, **extra: Any
) -> Connection:
    settings = {"python": "/opt/sglang/bin/python"} if draftmill is None else draftmill
    values = {"host_key": KEY, "draftmill": settings} | extra
    return Connection(
        conn_id="gpu_host",
        conn_type=conn_type,
        host=host,
        login="me",
        port=port,
        extra=json.dumps({name: value for name, value in values.items() if value is not None}),
    )


def test_a_whole_connection() -> None:
    host = Host.from_connection(connection({"python": "/opt/sglang/bin/python3.11", "workspace": "/data/draft_mill"}, port=2222))
    assert (host.address, host.python, host.workspace) == ("me@gpu1:2222", "/opt/sglang/bin/python3.11", "/data/draft_mill")


def test_the_workspace_is_below_the_home_folder_unless_told_otherwise() -> None:
    assert Host.from_connection(connection()).workspace == "~/draftmill"


def test_secrets_are_not_shown() -> None:
    host = Host.from_connection(connection({"python": "/bin/python", "secrets": {"HF_TOKEN": SECRET}}))
    assert host.secrets == {"HF_TOKEN": SECRET}
    assert SECRET not in repr(host)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"host_key": None}, ["host_key is missing", "ssh-keyscan gpu1"]),
        ({"host_key": "  "}, ["host_key is missing"]),
        ({"no_host_key_check": True}, ["no_host_key_check lets any machine pose as gpu1"]),
        ({"no_host_key_check": "true"}, ["no_host_key_check"]),
        ({"ignore_hostkey_verification": True}, ["ignore_hostkey_verification"]),
        ({"allow_host_key_change": "True"}, ["allow_host_key_change"]),
        ({"conn_type": "http"}, ["must be of type ssh"]),
        ({"host": None}, ["name a host"]),
        ({"draftmill": "python"}, ["extra key draftmill is missing", "/opt/sglang/bin/python"]),
        ({"draftmill": {}}, ["draftmill: python Field required"]),
        ({"draftmill": {"python": "python3"}}, ["python must be an absolute path"]),
        ({"draftmill": {"python": "/bin/python; touch /tmp/pwned"}}, ["python must be an absolute path of letters"]),
        ({"draftmill": {"python": "/bin/../bin/python"}}, ["python must be an absolute path"]),
        ({"draftmill": {"python": "/bin/python\n"}}, ["python must be an absolute path"]),
        ({"draftmill": {"python": "/bin/python", "workspace": "data"}}, ["workspace must be ~/FOLDER or an absolute path"]),
        ({"draftmill": {"python": "/bin/python", "workspace": "~other/x"}}, ["workspace must be"]),
        ({"draftmill": {"python": "/bin/python", "workspace": "/data/$(id)"}}, ["workspace must be"]),
        ({"draftmill": {"python": "/bin/python", "workspce": "/data"}}, ["workspce Extra inputs are not permitted"]),
        ({"draftmill": {"python": "/bin/python", "secrets": {"HF TOKEN": SECRET}}}, ["secrets must have names of environment variables"]),
        ({"draftmill": {"python": "/bin/python", "secrets": {"HF_TOKEN": [SECRET]}}}, ["secrets.HF_TOKEN Input should be a valid string"]),
    ],
)
def test_refusals_name_the_connection_and_the_key_and_no_secret(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(HostSettingsError) as caught:
        Host.from_connection(connection(**changes))
    text = str(caught.value)
    assert text.startswith("connection gpu_host: ")
    assert all(word in text for word in words), text
    assert SECRET not in text


def test_an_undefined_connection_is_named() -> None:
    with pytest.raises(HostSettingsError, match="connection no_such_host is not defined; set AIRFLOW_CONN_NO_SUCH_HOST"):
        Host.load("no_such_host")


async def test_an_undefined_connection_is_named_in_a_trigger_too() -> None:
    with pytest.raises(HostSettingsError, match="connection no_such_host is not defined"):
        await Host.aload("no_such_host")
