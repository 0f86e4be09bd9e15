"""A real SSH server on the loopback, run by the test's own user with its own keys and configuration.

It is OpenSSH's sshd where that is installed, and the demo's asyncssh host elsewhere, or where DRAFTMILL_TEST_SSH is `asyncssh`. Tests
that need options of sshd itself are skipped then.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import psutil
import pytest
from demo.ssh_host import write_private

ROOT = Path(__file__).resolve().parents[2]
_ASYNCSSH = os.environ.get("DRAFTMILL_TEST_SSH") == "asyncssh"
PROCESS_NAMES = frozenset({"sshd", "sshd-session", "sshd-auth"})
"""sshd's own processes; newer releases serve each connection with a program of its own."""

SSHD = None if _ASYNCSSH else shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    """A port of the loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, timeout_s: float = 20) -> None:
    """Return once something accepts connections on `port`; TimeoutError otherwise."""
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing listens on port {port} after {timeout_s} s")
        time.sleep(0.05)


def make_key(path: Path, kind: str = "ed25519") -> Path:
    """A fresh key pair without a passphrase at `path` and `path.pub`."""
    key = asyncssh.generate_private_key({"ed25519": "ssh-ed25519", "rsa": "ssh-rsa"}[kind])
    write_private(path, key.export_private_key())
    path.with_suffix(".pub").write_bytes(key.export_public_key())
    return path


class Sshd:
    """An sshd with one user (the caller), one client key and one host key. Folder, port and keys outlive a restart."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.host_key = make_key(folder / "host_key")
        self.client_key = make_key(folder / "client_key")
        (folder / "authorized_keys").write_text((folder / "client_key.pub").read_text())

    def _config(self) -> str:
        values = {
            "Port": str(self.port),
            "ListenAddress": "127.0.0.1",
            "HostKey": str(self.host_key),
            "AuthorizedKeysFile": str(self.folder / "authorized_keys"),
            "PidFile": str(self.folder / "sshd.pid"),
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PubkeyAuthentication": "yes",
            "PermitRootLogin": "prohibit-password",
            "StrictModes": "no",
            "UsePAM": "no",
            "UseDNS": "no",
            "PrintMotd": "no",
            "Subsystem": "sftp internal-sftp",
            "LogLevel": "VERBOSE",
        } | self.options
        return "".join(f"{name} {value}\n" for name, value in values.items())

    def start(self) -> Sshd:
        """Start listening; returns once connections are accepted."""
        command = self._sshd_command() if SSHD else self._asyncssh_command()
        with (self.folder / "sshd.log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        wait_for_port(self.port)
        return self

    def _sshd_command(self) -> list[str]:
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd refuses to start as root without it
        (self.folder / "sshd_config").write_text(self._config())
        return [str(SSHD), "-D", "-e", "-f", str(self.folder / "sshd_config")]

    def _asyncssh_command(self) -> list[str]:
        if self.options:
            pytest.skip(f"needs OpenSSH's sshd, for its options {', '.join(self.options)}")
        return [sys.executable, "-m", "demo.ssh_host", str(self.folder), "--port", str(self.port), "--home", str(Path.home())]

    def stop(self, connections: bool = True) -> None:
        """Stop listening and, with `connections`, cut those that stand: what a reboot or a crash of sshd looks like."""
        if self.process is None:
            return
        children = psutil.Process(self.process.pid).children(recursive=True) if connections else []
        self.process.terminate()
        self.process.wait(timeout=10)
        self.process = None
        # Only sshd's own processes: jobs that were started over a connection live on, as they do on a real host.
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.name() in PROCESS_NAMES:
                    child.send_signal(signal.SIGKILL)

    @contextlib.contextmanager
    def unreachable(self) -> Iterator[None]:
        """No byte goes in or out, and no connection is refused or closed: what a network that is down looks like from both ends."""
        assert self.process is not None
        daemon = psutil.Process(self.process.pid)
        members = [daemon, *(child for child in daemon.children(recursive=True) if child.name() in PROCESS_NAMES)]
        try:
            for member in members:
                member.suspend()
            yield
        finally:
            for member in members:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.resume()

    def connection(self, workspace: Path, *, python: str = sys.executable, port: int | None = None, **extra: Any) -> dict[str, Any]:
        """The Airflow connection to this server, as its JSON value. `extra` adds to or replaces keys of the extra field; None removes."""
        fields: dict[str, Any] = {
            "key_file": str(self.client_key),
            "host_key": " ".join(self.host_key.with_suffix(".pub").read_text().split()[:2]),
            "look_for_keys": "false",
            "draftmill": {"python": python, "workspace": str(workspace)},
        } | extra
        return {
            "conn_type": "ssh",
            "host": "127.0.0.1",
            "login": getpass.getuser(),
            "port": port or self.port,
            "extra": {name: value for name, value in fields.items() if value is not None},
        }

    def connection_json(self, workspace: Path, **changes: Any) -> str:
        """`connection` as text for an AIRFLOW_CONN_ variable."""
        return json.dumps(self.connection(workspace, **changes))

    def __enter__(self) -> Sshd:
        return self if self.process else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
