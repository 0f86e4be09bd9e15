"""The loopback SSH host, asked by the two clients that Airflow's SSH provider uses."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import signal
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncssh
import paramiko
import psutil
import pytest
from demo.ssh_host import LOOPBACK, Keys, serve, user_name


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Keys, int]]:
    keys = Keys(folder / "ssh")
    keys.make()
    home = folder / "home"
    home.mkdir()
    acceptor = await serve(keys, home, 0)
    acceptor_port = acceptor.get_port()
    try:
        yield keys, acceptor_port
    finally:
        acceptor.close()
        await acceptor.wait_closed()
        # The server's ends of connections close a moment after the client's.
        while any(item.laddr and item.laddr.port == acceptor_port for item in psutil.Process().net_connections("tcp")):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def connected(folder: Path, **options: Any) -> AsyncIterator[asyncssh.SSHClientConnection]:
    async with running(folder) as (keys, port):
        known = asyncssh.import_known_hosts(f"[{LOOPBACK}]:{port} {keys.host_public()}\n")
        settings = {"username": user_name(), "client_keys": [str(keys.client)], "known_hosts": known, "config": None, **options}
        async with asyncssh.connect(LOOPBACK, port, **settings) as connection:
            yield connection


async def test_keys_are_for_their_owner_only_and_are_made_once(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "ssh")
    keys.make()
    before = keys.host.read_bytes()
    keys.make()
    assert keys.host.read_bytes() == before
    assert {stat.S_IMODE(path.stat().st_mode) for path in (keys.host, keys.client)} == {0o600}


async def test_a_command_gets_input_and_gives_output_errors_and_its_exit_code(tmp_path: Path) -> None:
    async with connected(tmp_path) as connection:
        outcome = await connection.run("cat; echo problem >&2; exit 7", input=b"\x00\xff bytes\n", encoding=None)
    assert (outcome.stdout, outcome.stderr, outcome.exit_status) == (b"\x00\xff bytes\n", b"problem\n", 7)


async def test_a_command_runs_at_home_in_a_clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAK", "from the demo's own environment")
    async with connected(tmp_path) as connection:
        outcome = await connection.run('pwd; echo "$HOME"; echo "[$LEAK]"; echo "$USER"', check=True)
    assert str(outcome.stdout).splitlines() == [str(tmp_path / "home"), str(tmp_path / "home"), "[]", user_name()]


async def test_much_output_arrives_whole(tmp_path: Path) -> None:
    async with connected(tmp_path) as connection:
        outcome = await connection.run("head -c 3000000 /dev/zero", encoding=None)
    assert outcome.stdout == bytes(3_000_000)


async def test_a_command_killed_by_a_signal_says_so(tmp_path: Path) -> None:
    async with connected(tmp_path) as connection:
        outcome = await connection.run("kill -TERM $$")
    assert outcome.exit_signal is not None
    assert outcome.exit_signal[0] == "TERM"


async def test_what_a_command_detaches_outlives_the_connection(tmp_path: Path) -> None:
    async with connected(tmp_path) as connection:
        outcome = await connection.run("setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $!", check=True)
    pid = int(str(outcome.stdout))
    assert psutil.pid_exists(pid)
    os.kill(pid, signal.SIGKILL)


async def test_a_running_command_survives_a_client_that_leaves(tmp_path: Path) -> None:
    mark = tmp_path / "finished"
    async with running(tmp_path) as (keys, port):
        known = asyncssh.import_known_hosts(f"[{LOOPBACK}]:{port} {keys.host_public()}\n")
        connection = await asyncssh.connect(
            LOOPBACK, port, username=user_name(), client_keys=[str(keys.client)], known_hosts=known, config=None
        )
        process = await connection.create_process(f"echo begun; read line; echo a line nobody reads; touch {mark}")
        assert (await process.stdout.readline()).strip() == "begun"
        connection.abort()
        async with asyncio.timeout(20):
            while not mark.exists():  # noqa: ASYNC110 - another process makes the file
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("change", [{"username": "somebody-else"}, {"client_keys": [asyncssh.generate_private_key("ssh-ed25519")]}])
async def test_nobody_else_gets_in(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(asyncssh.PermissionDenied):
        async with connected(tmp_path, **change):
            pass


async def test_another_host_key_is_refused_by_the_client(tmp_path: Path) -> None:
    other = " ".join(asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().split()[:2])
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        async with connected(tmp_path, known_hosts=asyncssh.import_known_hosts(f"{LOOPBACK} {other}\n")):
            pass


async def test_it_listens_on_the_loopback_only(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, port):
        listening = [item.laddr for item in psutil.Process().net_connections("inet") if item.status == "LISTEN" and item.laddr.port == port]
    assert [address.ip for address in listening] == [LOOPBACK]


async def test_paramiko_copies_files_and_runs_commands(tmp_path: Path) -> None:
    async with running(tmp_path) as (keys, port):
        text = await asyncio.to_thread(_copy_and_show, keys, port, tmp_path / "home")
    assert text == "carried over\n"


def _copy_and_show(keys: Keys, port: int, home: Path) -> str:
    client = paramiko.SSHClient()
    kind, key = keys.host_public().split()
    client.get_host_keys().add(f"[{LOOPBACK}]:{port}", kind, paramiko.Ed25519Key(data=base64.b64decode(key)))
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    client.connect(LOOPBACK, port, username=user_name(), key_filename=str(keys.client), look_for_keys=False, allow_agent=False)
    try:
        with client.open_sftp() as sftp, sftp.open(str(home / "a.txt"), "w") as stream:
            stream.write("carried over\n")
        return client.exec_command("cat a.txt")[1].read().decode()
    finally:
        client.close()
