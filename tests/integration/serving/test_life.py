"""The life of a server, with the stand-in: launched, shared, found idle, stopped, found again after its supervisor was killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmill.errors import StoppedError, TemporaryError
from draftmill.jobs.proc import read_stat
from draftmill.layout import Workspace
from draftmill.serving import lease
from draftmill.serving.folder import ServerFolder, ServerState, read_state
from draftmill.serving.lease import hold
from draftmill.serving.leases import held_leases
from draftmill.serving.ports import is_listening
from draftmill.serving.probe import Probe
from draftmill.serving.stopping import is_running, stop_server, supervisor_process


def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    """Wait for a condition that another process brings about."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)
    return value


def state_of(workspace: Workspace) -> ServerState:
    state = read_state(ServerFolder.of(workspace))
    assert state is not None
    return state


def lives(pid: int) -> bool:
    seen = read_stat(pid)
    return seen is not None and not seen.dead


def test_a_lease_brings_the_server_up_and_stop_takes_it_down(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    with hold(workspace, fake(), "one/alpha", stop) as source:
        endpoint = source.wait()
        assert endpoint.kv_capacity_tokens == 65536
        assert endpoint.vocab_size == 1024
        assert endpoint.max_req_input_len == 2042
        assert endpoint.context_length == 2048
        assert [note.owner for note in held_leases(ServerFolder.of(workspace).leases)] == ["one/alpha"]
        assert Probe(endpoint.base_url, endpoint.api_key).generate_one(5) == [5]
    assert held_leases(ServerFolder.of(workspace).leases) == []
    state = state_of(workspace)
    assert state.state == "ready"
    stop_server(workspace)
    assert state_of(workspace).state == "stopped"
    assert not is_listening(state.port)
    assert state.leader is not None
    assert not lives(state.leader.pid)
    assert not is_running(workspace)


def test_the_key_is_needed_and_stays_in_files_of_its_owner(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    with hold(workspace, fake(), "one/alpha", stop) as source:
        endpoint = source.wait()
        assert endpoint.api_key
        assert Probe(endpoint.base_url, "wrong").facts() is None
        folder = ServerFolder.of(workspace)
        holding = {path for path in folder.root.rglob("*") if path.is_file() and endpoint.api_key in path.read_text(errors="replace")}
        assert holding == {folder.state, folder.config, folder.log(1)}
        assert {stat.S_IMODE(path.stat().st_mode) for path in holding} == {0o600}
        commands = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
        assert endpoint.api_key not in commands
        assert endpoint.api_key not in repr(endpoint)


def test_a_second_holder_joins_and_nothing_is_started_again(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    with hold(workspace, fake(), "one/alpha", stop) as first, hold(workspace, fake(), "one/beta", stop) as second:
        assert first.wait() == second.wait()
        assert len(held_leases(ServerFolder.of(workspace).leases)) == 2
        assert first.wait().incarnation == 1


def test_two_holders_at_once_start_one_supervisor(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    seen: list[Any] = []

    def take(owner: str) -> None:
        with hold(workspace, fake(), owner, stop) as source:
            seen.append(source.wait())

    threads = [threading.Thread(target=take, args=(f"one/{name}",)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4
    assert {endpoint.incarnation for endpoint in seen} == {1}
    identity = supervisor_process(workspace).identity()
    assert identity is not None
    assert identity.attempt == 1


def test_another_profile_waits_for_the_holders_and_then_says_who_they_are(
    workspace: Workspace, fake: Any, stop: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_WAIT_FOR_OTHERS_S", 0.5)
    told: list[str] = []
    other = fake(name="other", drain_s=6)
    with hold(workspace, fake(), "one/alpha", stop) as source:
        source.wait()
        with (
            pytest.raises(TemporaryError, match=r"runs another profile for one/alpha \(pid \d+\)"),
            hold(workspace, other, "two/beta", stop, told.append),
        ):
            pass
    assert any("one/alpha" in line for line in told)
    with hold(workspace, other, "two/beta", stop) as source:
        assert source.wait().incarnation == 2
        assert state_of(workspace).server == "other"


def test_a_killed_supervisor_does_not_hand_the_host_to_another_profile(
    workspace: Workspace, fake: Any, stop: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_WAIT_FOR_OTHERS_S", 0.5)
    with hold(workspace, fake(), "one/alpha", stop) as first, hold(workspace, fake(), "one/beta", stop) as second:
        first.wait()
        os.kill(state_of(workspace).supervisor_pid, signal.SIGKILL)
        with (
            pytest.raises(TemporaryError, match="runs another profile for one/alpha"),
            hold(workspace, fake(name="other"), "two/beta", stop),
        ):
            pass
        # Those who hold leases for the same profile do not wait for each other.
        assert second.wait(newer_than=1).incarnation == 2
        assert first.wait(newer_than=1).incarnation == 2


def test_the_kernel_frees_the_lease_of_a_killed_holder(workspace: Workspace, fake: Any, stop: threading.Event, tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from draftmill.serving.leases import LeaseFile\n"
        "lease = LeaseFile(Path(sys.argv[1]), 'one/alpha', 'x'); print('held', flush=True); time.sleep(600)"
    )
    folder = tmp_path / "leases"
    env = {**os.environ, "PYTHONPATH": str(Path(lease.__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", script, str(folder)], env=env, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert [note.pid for note in held_leases(folder)] == [holder.pid]
        holder.kill()
        holder.wait()
        until(lambda: held_leases(folder) == [])
    assert list(folder.iterdir()) == []


def test_an_idle_server_stops_and_the_next_lease_brings_it_back(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    profile = fake(idle_stop_s=1)
    with hold(workspace, profile, "one/alpha", stop) as source:
        source.wait()
        time.sleep(2)  # longer than the idle time: a held lease keeps it
        assert state_of(workspace).state == "ready"
    until(lambda: state_of(workspace).state == "stopped")
    assert state_of(workspace).message == "nobody needed it for 1 s"
    until(lambda: not is_running(workspace))
    with hold(workspace, profile, "one/alpha", stop) as source:
        assert source.wait().incarnation == 2


def test_stopping_while_loading_is_quick(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    def ask_for_a_stop() -> None:
        until(lambda: (state := read_state(ServerFolder.of(workspace))) and state.leader)
        stop.set()

    asking = threading.Thread(target=ask_for_a_stop)
    asking.start()
    with pytest.raises(StoppedError), hold(workspace, fake("hang_at_load"), "one/alpha", stop):
        pass
    asking.join()
    began = time.monotonic()
    stop_server(workspace)
    assert time.monotonic() - began < 10
    assert state_of(workspace).state == "stopped"


def test_a_drain_finishes_what_is_in_flight(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    with hold(workspace, fake(env={"FAKE_ANSWER_S": "1.5"}), "one/alpha", stop) as source:
        endpoint = source.wait()
        answers: list[list[int]] = []
        asking = threading.Thread(target=lambda: answers.append(Probe(endpoint.base_url, endpoint.api_key).generate_one(10)))
        asking.start()
        time.sleep(0.5)
        stop_server(workspace)
        asking.join()
    assert answers == [[5]]


def test_a_server_that_ignores_term_is_killed_after_the_drain_time(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    with hold(workspace, fake("deaf_to_term", drain_s=1), "one/alpha", stop) as source:
        source.wait()
    leader = state_of(workspace).leader
    stop_server(workspace)
    assert leader is not None
    assert not lives(leader.pid)


@pytest.mark.parametrize("mode", ["worker", "escaping_worker", "deaf_worker"])
def test_a_killed_launcher_leaves_no_worker_behind(
    workspace: Workspace, fake: Any, stop: threading.Event, mode: str, tmp_path: Path
) -> None:
    profile = fake(mode, env={"FAKE_ONCE": str(tmp_path / "once")})
    with hold(workspace, profile, "one/alpha", stop) as source:
        source.wait()
        first = state_of(workspace)
        assert first.leader is not None
        assert len(first.processes) == 2
        os.kill(first.leader.pid, signal.SIGKILL)
        assert source.wait(newer_than=1).incarnation == 2
        assert [record.pid for record in first.processes if lives(record.pid)] == []
    assert state_of(workspace).restarts == 1


@pytest.mark.parametrize("mode", ["worker", "escaping_worker", "deaf_worker"])
def test_what_a_killed_supervisor_leaves_behind_is_ended_before_the_next_launch(
    workspace: Workspace, fake: Any, stop: threading.Event, mode: str
) -> None:
    profile = fake(mode)
    with hold(workspace, profile, "one/alpha", stop) as source:
        source.wait()
        first = state_of(workspace)
        os.kill(first.supervisor_pid, signal.SIGKILL)
        until(lambda: not lives(first.supervisor_pid))
        assert source.wait(newer_than=1).incarnation == 2
        assert [record.pid for record in first.processes if lives(record.pid)] == []
        assert state_of(workspace).supervisor_pid != first.supervisor_pid


def test_a_killed_supervisor_takes_its_server_along(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    with hold(workspace, fake(), "one/alpha", stop) as source:
        source.wait()
    state = state_of(workspace)
    assert state.leader is not None
    leader = state.leader.pid
    os.kill(state.supervisor_pid, signal.SIGKILL)
    until(lambda: not lives(leader))


def test_stop_cleans_up_after_a_killed_supervisor(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    with hold(workspace, fake("deaf_worker"), "one/alpha", stop) as source:
        source.wait()
    state = state_of(workspace)
    os.kill(state.supervisor_pid, signal.SIGKILL)
    until(lambda: not lives(state.supervisor_pid))
    assert is_running(workspace)
    stop_server(workspace)
    assert [record.pid for record in state.processes if lives(record.pid)] == []
    assert state_of(workspace).state == "stopped"


def test_a_second_supervisor_refuses(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    with hold(workspace, fake(), "one/alpha", stop) as source:
        source.wait()
        argv = [sys.executable, "-m", "draftmill.serving.cli", "supervise", "--workspace", str(workspace.root)]
        env = {**os.environ, "PYTHONPATH": str(Path(lease.__file__).parents[2])}
        second = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, check=False)
        assert second.returncode == 75
        assert "two supervisors never coexist" in second.stderr
        assert state_of(workspace).state == "ready"


def test_an_older_build_gets_words_instead_of_a_file_and_is_asked_under_older_names(
    workspace: Workspace, fake: Any, stop: threading.Event
) -> None:
    with hold(workspace, fake("old_build"), "one/alpha", stop) as source:
        endpoint = source.wait()
        assert endpoint.api_key is None
        assert endpoint.kv_capacity_tokens == 65536
        assert not ServerFolder.of(workspace).config.exists()
