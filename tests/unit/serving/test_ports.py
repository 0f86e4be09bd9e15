from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from draftmill.serving.ports import free_port, is_listening, name_owner, port_owners


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_listener_of_a_port_is_found(family: socket.AddressFamily, address: str) -> None:
    with socket.socket(family) as server:
        server.bind((address, 0))
        port = server.getsockname()[1]
        assert not is_listening(port)  # bound is not listening
        server.listen()
        assert is_listening(port)
        assert os.getpid() in port_owners(port)
        assert port_owners(port, [1]) == []
        with socket.create_connection((address, port)):
            assert port_owners(port) == [os.getpid()]
        assert f"pid {os.getpid()} of " in name_owner(port)
    assert not is_listening(port)
    assert port_owners(port) == []


def test_a_port_of_another_process_is_not_ours() -> None:
    script = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        assert port_owners(port, [os.getpid()]) == []
        assert port_owners(port) == [other.pid]
        other.kill()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_free_port_is_free(host: str) -> None:
    port = free_port(host)
    assert port > 0
    assert not is_listening(port)
