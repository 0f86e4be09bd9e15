"""The demo's "GPU machine": an SSH server on the loopback, with exec and SFTP, for the user who starts it.

    python -m demo.ssh_host FOLDER [--port PORT]

It behaves as a real sshd does where it matters here: one host key, public-key login only, commands through the user's login shell in the
home folder with a small clean environment, and commands that outlive their connection. The port in use is written to FOLDER/port.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import pwd
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncssh

LOOPBACK = "127.0.0.1"
log = logging.getLogger("demo.ssh_host")


@dataclass(frozen=True)
class Keys:
    """The host's key and the one client key it accepts, as files of mode 0600 in `folder`."""

    folder: Path

    @property
    def host(self) -> Path:
        """The host's private key."""
        return self.folder / "host_key"

    @property
    def client(self) -> Path:
        """The client's private key."""
        return self.folder / "client_key"

    @property
    def port_file(self) -> Path:
        """Where a running host writes its port."""
        return self.folder / "port"

    def make(self) -> None:
        """Make what is missing; keys that are there stay."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in (self.host, self.client):
            if not path.exists():
                key = asyncssh.generate_private_key("ssh-ed25519", comment=f"draftmill demo {path.name}")
                write_private(path, key.export_private_key())

    def host_public(self) -> str:
        """The host's public key as an Airflow connection's `host_key` wants it."""
        return " ".join(asyncssh.read_private_key(str(self.host)).export_public_key().decode().split()[:2])


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can ever read."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(data)
    temporary.replace(path)


class OneUser(asyncssh.SSHServer):
    """Lets in whoever started the host, with the one client key."""

    def __init__(self, client_key: asyncssh.SSHKey) -> None:
        self._client_key = client_key

    def auth_completed(self) -> None:
        """Say so, in the words of OpenSSH."""
        log.info("Accepted publickey for %s", user_name())

    def begin_auth(self, username: str) -> bool:
        """Everybody must log in."""
        return True

    def public_key_auth_supported(self) -> bool:
        """The only way in."""
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Whether this user may log in with this key."""
        return username == user_name() and key.public_data == self._client_key.public_data


def user_name() -> str:
    """Who runs this process, whatever the environment says; the number where the account has no name, as in some containers."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def login_shell() -> str:
    """The user's login shell; /bin/sh where the account has none that runs commands, as in many containers."""
    try:
        shell = pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:
        shell = ""
    return shell if shell and os.access(shell, os.X_OK) and Path(shell).name not in ("nologin", "false") else "/bin/sh"


def command_environment(home: Path) -> dict[str, str]:
    """What a command finds in its environment: what sshd sets, and which demo it belongs to."""
    user = user_name()
    environment = {"HOME": str(home), "USER": user, "LOGNAME": user, "SHELL": login_shell(), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    mark = os.environ.get("DRAFTMILL_DEMO_MARK")
    return environment | ({"DRAFTMILL_DEMO_MARK": mark} if mark else {})


class CommandRunner:
    """Runs one command for each session, as sshd does without a terminal."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self.home = home
        self.environment = environment

    async def __call__(self, session: asyncssh.SSHServerProcess[bytes]) -> None:
        """Serve a session to its end. A client that leaves ends the pipes, not the command."""
        if session.command is None:
            session.stderr.write(b"This host runs commands and SFTP only.\n")
            session.exit(1)
            return
        child = await asyncio.create_subprocess_exec(
            *(self.environment["SHELL"], "-c", session.command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.home,
            env=self.environment,
            start_new_session=True,
        )
        if not (child.stdin and child.stdout and child.stderr):
            raise RuntimeError("a child with three pipes has three pipes")
        feeding = asyncio.create_task(_feed(session.stdin, child.stdin))
        await asyncio.gather(_drain(child.stdout, session.stdout), _drain(child.stderr, session.stderr))
        code = await child.wait()
        feeding.cancel()
        if code < 0:
            session.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
        else:
            session.exit(code)


async def _feed(source: asyncssh.SSHReader[bytes], sink: asyncio.StreamWriter) -> None:
    """Copy the client's input to the command until either end closes."""
    with contextlib.suppress(OSError, asyncssh.Error):
        while piece := await source.read(1 << 16):
            sink.write(piece)
            await sink.drain()
    with contextlib.suppress(OSError):
        sink.close()


async def _drain(source: asyncio.StreamReader, sink: asyncssh.SSHWriter[bytes]) -> None:
    """Copy the command's output to the client; once the client is gone, read on and drop, so that the command can finish."""
    listening = True
    while piece := await source.read(1 << 16):
        if listening:
            try:
                sink.write(piece)
                await sink.drain()
            except (OSError, asyncssh.Error):
                listening = False


async def serve(keys: Keys, home: Path, port: int) -> asyncssh.SSHAcceptor:
    """Start listening on the loopback. `port` 0 takes a free one."""
    client_key = asyncssh.read_private_key(str(keys.client))
    return await asyncssh.listen(
        LOOPBACK,
        port,
        server_factory=lambda: OneUser(client_key),
        server_host_keys=[str(keys.host)],
        process_factory=CommandRunner(home, command_environment(home)),
        sftp_factory=True,
        encoding=None,
        password_auth=False,
        kbdint_auth=False,
        allow_scp=False,
        agent_forwarding=False,
        x11_forwarding=False,
        keepalive_interval=30,
    )


async def run(folder: Path, home: Path, port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stopped.set)
    keys = Keys(folder)
    keys.make()
    acceptor = await serve(keys, home, port)
    keys.port_file.write_text(f"{acceptor.get_port()}\n")
    log.info("listening on %s:%d", LOOPBACK, acceptor.get_port())
    await stopped.wait()
    acceptor.close()
    keys.port_file.unlink(missing_ok=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="A loopback SSH host for the demo.")
    parser.add_argument("folder", type=Path, help="where the keys and the port file lie")
    parser.add_argument("--home", type=Path, help="home folder of the commands; default: FOLDER/home")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    given = parser.parse_args()
    folder = given.folder.absolute()
    home = (given.home or folder / "home").absolute()
    home.mkdir(parents=True, exist_ok=True)
    os.chdir(home)  # SFTP's relative paths start here
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    asyncio.run(run(folder, home, given.port))


if __name__ == "__main__":
    main()
