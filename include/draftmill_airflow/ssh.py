"""Calls to a host from a task, over one SSH connection of the provider's hook (paramiko)."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from draftmill_airflow.errors import HostRefused, HostSettingsError, HostUnreachable
from draftmill_airflow.wire import MAX_ANSWER, Verb, command, delays, encode, read_answer

if TYPE_CHECKING:
    import paramiko
    from pydantic import BaseModel

    from draftmill.jobs.models import JobStatus
    from draftmill_airflow.host import Host

log = logging.getLogger(__name__)

CONNECT_S = 15
"""Time limit of one attempt to connect."""

PATIENCE_S = 180
"""How long a task tries to connect before it fails, to be tried again later."""


class HostSession:
    """One connection to a host. One call at a time: a host may allow few sessions a connection (sshd's MaxSessions)."""

    def __init__(self, host: Host, client: paramiko.SSHClient) -> None:
        self.host = host
        self._client = client

    def call(self, zipapp: str, verb: Verb, request: BaseModel, timeout_s: float) -> JobStatus:
        """Run `job VERB` with `request`. HostUnreachable where there is no answer within `timeout_s`; read_answer's errors otherwise."""
        import paramiko

        deadline = time.monotonic() + timeout_s
        try:
            outcome = self._run(command(self.host.python, zipapp, verb), encode(request), deadline)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise HostUnreachable(
                f"{self.host.address}: the connection broke during `job {verb}`: {error or type(error).__name__}"
            ) from error
        return read_answer(self.host, *outcome)

    def _run(self, line: str, data: bytes, deadline: float) -> tuple[int, bytes, bytes]:
        transport = self._client.get_transport()
        if transport is None:
            raise EOFError("not connected")
        channel = transport.open_session(timeout=CONNECT_S)
        try:
            channel.exec_command(line)
            channel.settimeout(max(deadline - time.monotonic(), 1))
            channel.sendall(data)
            channel.shutdown_write()
            stdout = _read(channel.recv, channel.settimeout, deadline)
            stderr = _read(channel.recv_stderr, channel.settimeout, deadline)
            if not channel.status_event.wait(max(deadline - time.monotonic(), 1)):
                raise TimeoutError("no exit status in time")
            status = channel.recv_exit_status()
        finally:
            channel.close()
        if status < 0:
            raise EOFError("it ended without an exit status")
        return status, stdout, stderr

    @contextlib.contextmanager
    def sftp(self, timeout_s: float = 60) -> Iterator[paramiko.SFTPClient]:
        """File transfer over this connection; no single operation may take longer than `timeout_s`."""
        import paramiko

        try:
            with self._client.open_sftp() as client:
                client.get_channel().settimeout(timeout_s)  # type: ignore[union-attr]  # open_sftp returns an open channel
                yield client
        except (paramiko.SSHException, EOFError, TimeoutError) as error:
            raise HostUnreachable(f"{self.host.address}: the connection broke during a file transfer: {error}") from error


def _read(receive: Callable[[int], bytes], limit: Callable[[float], None], deadline: float) -> bytes:
    output = bytearray()
    while True:
        limit(max(deadline - time.monotonic(), 0.1))
        piece = receive(1 << 16)
        if not piece:
            return bytes(output)
        output += piece
        if len(output) > MAX_ANSWER:
            raise OSError(f"more than {MAX_ANSWER} bytes of output")


@contextlib.contextmanager
def connect(host: Host, patience_s: float = PATIENCE_S) -> Iterator[HostSession]:
    """Connect, and try again for `patience_s` where the host cannot be reached.

    Raises HostUnreachable, HostRefused (host key, login) or HostSettingsError.
    """
    client = _connect(host, patience_s)
    try:
        yield HostSession(host, client)
    finally:
        client.close()


def _connect(host: Host, patience_s: float) -> paramiko.SSHClient:
    import paramiko

    logging.getLogger("paramiko").setLevel(logging.WARNING)
    deadline = time.monotonic() + patience_s
    for delay in delays():
        try:
            return _attempt(host)
        except (paramiko.SSHException, OSError, EOFError) as error:  # noqa: PERF203 - an attempt takes much longer
            _raise_if_final(host, error)
            reason = str(error) or type(error).__name__
            if time.monotonic() + delay > deadline:
                raise HostUnreachable(
                    f"{host.address}: cannot be reached for {patience_s:.0f} s ({reason}); check host and network"
                ) from error
            log.info("%s cannot be reached (%s); trying again in %.1f s", host.address, reason, delay)
            time.sleep(delay)
    raise AssertionError("delays never end")


def _attempt(host: Host) -> paramiko.SSHClient:
    from airflow.providers.ssh.hooks.ssh import SSHHook
    from airflow.sdk.exceptions import AirflowException

    try:
        # Retrying is ours: the hook would also retry what can never succeed, and at fixed intervals.
        hook = SSHHook(host.conn_id, conn_timeout=CONNECT_S, banner_timeout=CONNECT_S, auth_timeout=CONNECT_S, conn_retry_attempts=1)
    except (ValueError, AirflowException) as error:
        raise HostSettingsError(f"connection {host.conn_id}: {error}") from error
    return hook.get_conn()


def _raise_if_final(host: Host, error: Exception) -> None:
    """Raise what no second attempt would change."""
    import paramiko

    if isinstance(error, FileNotFoundError | PermissionError):
        raise HostSettingsError(f"connection {host.conn_id}: the key file cannot be read here: {error}") from error
    if isinstance(error, paramiko.BadHostKeyException) or "not found in known_hosts" in str(error):
        raise HostRefused(
            f"{host.address}: the host key is not the one of connection {host.conn_id} ({error}); if the host was installed anew, "
            "compare its key and correct host_key, otherwise another machine answers in its place"
        ) from error
    # A server under load may take too long to authenticate; paramiko reports that as a failed authentication.
    if isinstance(error, paramiko.AuthenticationException) and "timeout" not in str(error).lower():
        raise HostRefused(
            f"{host.address}: the login of connection {host.conn_id} was refused ({error}); check its user, key and the host's "
            "authorized_keys"
        ) from error
