"""Calls to a host from a trigger, over one SSH connection of the provider's asynchronous hook (asyncssh)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from draftmill_airflow.errors import HostRefused, HostSettingsError, HostUnreachable
from draftmill_airflow.wire import Verb, command, encode, read_answer

if TYPE_CHECKING:
    import asyncssh
    from pydantic import BaseModel

    from draftmill.jobs.models import JobStatus
    from draftmill_airflow.host import Host

CONNECT_S = 20
"""Time limit of one attempt to connect."""


class AsyncHostSession:
    """One connection to a host, one call at a time."""

    def __init__(self, host: Host, connection: asyncssh.SSHClientConnection) -> None:
        self.host = host
        self._connection = connection

    async def call(self, zipapp: str, verb: Verb, request: BaseModel, timeout_s: float) -> JobStatus:
        """Run `job VERB` with `request`. HostUnreachable where there is no answer within `timeout_s`; read_answer's errors otherwise."""
        import asyncssh

        line = command(self.host.python, zipapp, verb)
        try:
            running = self._connection.run(line, input=encode(request), encoding=None, check=False)
            done = await asyncio.wait_for(running, timeout_s)
        except (asyncssh.Error, OSError, asyncio.TimeoutError) as error:
            raise HostUnreachable(f"{self.host.address}: no answer to `job {verb}`: {str(error) or type(error).__name__}") from error
        if done.exit_status is None or done.exit_status < 0:
            raise HostUnreachable(f"{self.host.address}: the connection broke during `job {verb}`")
        return read_answer(self.host, done.exit_status, _bytes(done.stdout), _bytes(done.stderr))


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value or "").encode()


@contextlib.asynccontextmanager
async def connect(host: Host) -> AsyncIterator[AsyncHostSession]:
    """One attempt to connect. Raises HostUnreachable, HostRefused (host key, login) or HostSettingsError."""
    connection = await _connect(host)
    try:
        yield AsyncHostSession(host, connection)
    finally:
        # Not awaited to its end: a connection whose network is gone would keep its holder waiting.
        connection.abort()


async def _connect(host: Host) -> asyncssh.SSHClientConnection:
    import asyncssh
    from airflow.providers.ssh.hooks.ssh import SSHHookAsync

    # At INFO it logs six lines for every call.
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    try:
        return await asyncio.wait_for(SSHHookAsync(host.conn_id).get_conn(), CONNECT_S)  # type: ignore[no-untyped-call]
    except asyncssh.HostKeyNotVerifiable as error:
        raise HostRefused(
            f"{host.address}: the host key is not the one of connection {host.conn_id} ({error}); if the host was installed anew, "
            "compare its key and correct host_key, otherwise another machine answers in its place"
        ) from error
    except asyncssh.PermissionDenied as error:
        raise HostRefused(
            f"{host.address}: the login of connection {host.conn_id} was refused ({error}); check its user, key and the host's "
            "authorized_keys"
        ) from error
    except (asyncssh.KeyImportError, FileNotFoundError, ValueError) as error:
        raise HostSettingsError(f"connection {host.conn_id}: {error}") from error
    except (asyncssh.Error, OSError, asyncio.TimeoutError) as error:
        raise HostUnreachable(f"{host.address}: cannot be reached ({str(error) or type(error).__name__})") from error
