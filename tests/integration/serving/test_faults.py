"""Everything that can go wrong with a server, as processes that really do it: each gives its one sentence, and the next launch works
without anybody touching the host."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from draftmill.errors import DraftmillError, PermanentError
from draftmill.layout import Workspace
from draftmill.serving.endpoint import Endpoint, ServerGone
from draftmill.serving.folder import ServerFolder, ServerState, read_state
from draftmill.serving.lease import hold
from draftmill.serving.probe import Probe, ProbeError
from draftmill.spec.server import NamedServer
from tests.integration.serving.test_life import until

GIB = 1 << 30


def refused(workspace: Workspace, server: NamedServer, stop: threading.Event) -> DraftmillError:
    """The error of taking a lease."""
    with pytest.raises(DraftmillError) as caught, hold(workspace, server, "one/alpha", stop):
        pass
    return caught.value


def comes_up(workspace: Workspace, server: NamedServer, stop: threading.Event) -> Endpoint:
    """The endpoint of a server that works now."""
    with hold(workspace, server, "one/alpha", stop) as source:
        return source.wait()


def state_of(workspace: Workspace) -> ServerState:
    state = read_state(ServerFolder.of(workspace))
    assert state is not None
    return state


@contextmanager
def listener() -> Iterator[int]:
    """Somebody else's healthy server on a port of its own."""
    script = (
        "import http.server\n"
        "class Healthy(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        '        body = b\'{"model_path": "/another/model"}\'\n'
        "        self.send_response(200); self.send_header('Content-Length', str(len(body))); self.end_headers(); self.wfile.write(body)\n"
        "server = http.server.HTTPServer(('127.0.0.1', 0), Healthy)\n"
        "print(server.server_address[1], flush=True)\n"
        "server.serve_forever()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        assert process.poll() is None, "somebody else's server was killed"
        process.kill()


def test_a_silent_server(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    error = refused(workspace, fake("silent", load_stall_s=1.5, max_restarts=0), stop)
    assert isinstance(error, ServerGone)
    assert "the server answers, but generates nothing" in str(error)
    comes_up(workspace, fake(), stop)


def test_a_server_that_shows_no_progress_while_loading(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    error = refused(workspace, fake("hang_at_load", load_stall_s=1.5, max_restarts=0), stop)
    assert isinstance(error, ServerGone)
    assert "shows no sign of progress since" in str(error)
    assert "Loading safetensors checkpoint shards: 1" in str(error)
    comes_up(workspace, fake(), stop)


def test_loading_may_take_longer_than_the_stall_time_while_it_moves(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    assert comes_up(workspace, fake(load_stall_s=2, env={"FAKE_LOAD_STEPS": "20"}), stop).incarnation == 1


def test_a_crash_at_load_is_tried_twice_and_told_with_its_exception(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    error = refused(workspace, fake("crash_at_load"), stop)
    assert isinstance(error, PermanentError)
    assert "SGLang failed with ValueError: the checkpoint holds no such layer: model.layers.61; it came twice while loading" in str(error)
    assert str(ServerFolder.of(workspace).log(2)) in str(error)
    assert state_of(workspace).incarnation == 2
    comes_up(workspace, fake(), stop)


def test_weights_that_do_not_fit_need_a_person_at_once(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    error = refused(workspace, fake("out_of_memory"), stop)
    assert isinstance(error, PermanentError)
    assert "the weights do not fit into GPU memory" in str(error)
    assert state_of(workspace).incarnation == 1
    comes_up(workspace, fake(), stop)


def test_a_crash_on_the_first_batch_is_restarted_and_then_given_up(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    with hold(workspace, fake("crash_on_first_batch", max_restarts=1), "one/alpha", stop) as source:
        endpoint = source.wait()
        with pytest.raises(ProbeError):
            Probe(endpoint.base_url, endpoint.api_key).generate_one(10)
        second = source.wait(newer_than=endpoint.incarnation)
        assert second.incarnation == 2
        assert second.api_key != endpoint.api_key
        with pytest.raises(ProbeError):
            Probe(second.base_url, second.api_key).generate_one(10)
        with pytest.raises(ServerGone, match="SGLang failed with RuntimeError: the batch went wrong"):
            source.wait(newer_than=2)
    comes_up(workspace, fake(), stop)


def test_a_port_taken_by_another_healthy_server(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    with listener() as port:
        error = refused(workspace, fake(port=port), stop)
        assert isinstance(error, ServerGone)
        assert f"port {port} is taken by pid" in str(error)
        assert "will neither use nor end" in str(error)
        assert state_of(workspace).leader is None
    comes_up(workspace, fake(port=port), stop)


def test_a_server_with_another_model(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    error = refused(workspace, fake("wrong_model"), stop)
    assert isinstance(error, PermanentError)
    assert "the server serves /another/model" in str(error)
    comes_up(workspace, fake(), stop)


def test_a_kv_cache_that_is_too_small(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    error = refused(workspace, fake("small_kv", min_kv_tokens=60_000), stop)
    assert isinstance(error, PermanentError)
    assert "its KV cache holds 4,578 tokens, the profile asks for at least 60,000" in str(error)
    comes_up(workspace, fake(min_kv_tokens=60_000), stop)


def test_an_unknown_flag_starts_nothing(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    error = refused(workspace, fake(extra_args={"atention_backend": "triton"}), stop)
    assert isinstance(error, PermanentError)
    assert "atention-backend: is no flag of this build; did you mean attention-backend? (SGLang 0.0.1+fake)" in str(error)
    assert not ServerFolder.of(workspace).logs.exists()
    comes_up(workspace, fake(), stop)


def test_an_interpreter_without_sglang(workspace: Workspace, fake: Any, stop: threading.Event, tmp_path: Path) -> None:
    error = refused(workspace, fake(python=str(tmp_path / "nowhere")), stop)
    assert isinstance(error, PermanentError)
    assert "cannot be run: No such file or directory" in str(error)


def gpu(index: int, used: int, processes: dict[int, int] | None = None) -> dict[str, Any]:
    return {"uuid": f"GPU-{index}", "name": "Fake", "total": 96 * GIB, "used": used, "processes": processes or {}}


def test_too_few_gpus(workspace: Workspace, fake: Any, stop: threading.Event, fake_gpus: Path) -> None:
    fake_gpus.write_text(json.dumps([gpu(0, 0), gpu(1, 0)]))
    error = refused(workspace, fake(device="cuda", tensor_parallel=8), stop)
    assert isinstance(error, PermanentError)
    assert "tensor_parallel is 8, but this host shows 2 GPUs" in str(error)
    assert comes_up(workspace, fake(device="cuda", tensor_parallel=2), stop).incarnation == 2


def test_gpu_memory_in_the_hands_of_another_user(workspace: Workspace, fake: Any, stop: threading.Event, fake_gpus: Path) -> None:
    owner = pwd.getpwnam("nobody" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name)  # only root can be somebody else
    with subprocess.Popen(["sleep", "600"], user=owner.pw_uid if os.getuid() == 0 else None) as other:
        fake_gpus.write_text(json.dumps([gpu(0, 40 * GIB, {other.pid: 40 * GIB})]))
        error = refused(workspace, fake(device="cuda"), stop)
        assert isinstance(error, ServerGone)
        assert f"GPU 0 has 57,344 MiB free and memory_fraction 0.88 needs 86,507: pid {other.pid} of {owner.pw_name}" in str(error)
        assert "(sleep 600) with 40,960 MiB holds the rest" in str(error)
        assert other.poll() is None
        other.kill()
    fake_gpus.write_text(json.dumps([gpu(0, 0)]))
    comes_up(workspace, fake(device="cuda"), stop)


def test_gpu_memory_that_does_not_come_back_is_named(
    workspace: Workspace, fake: Any, stop: threading.Event, fake_gpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from draftmill.serving import verify

    monkeypatch.setattr(verify, "WAIT_S", 0.5)
    fake_gpus.write_text(json.dumps([gpu(0, GIB)]))
    comes_up(workspace, fake(device="cuda"), stop)
    state = state_of(workspace)
    assert state.gpu_used_before == {"0": GIB}
    fake_gpus.write_text(json.dumps([gpu(0, 60 * GIB)]))
    assert verify.remains(state, ServerFolder.of(workspace), verify.all_gpus())[-1] == "GPU 0 holds 60,416 MiB more than before the start"
    fake_gpus.write_text(json.dumps([gpu(0, GIB)]))


@pytest.mark.parametrize("reporters", [0, 2])
def test_a_wedged_server_is_restarted_once_whoever_notices_first(
    workspace: Workspace, fake: Any, stop: threading.Event, tmp_path: Path, reporters: int
) -> None:
    server = fake("wedge", env={"FAKE_ONCE": str(tmp_path / "once")}, silent_s=2 if reporters == 0 else 600)
    with hold(workspace, server, "one/alpha", stop) as first, hold(workspace, server, "one/beta", stop) as second:
        endpoint = first.wait()
        Probe(endpoint.base_url, endpoint.api_key).generate_one(10)
        asked = Probe(endpoint.base_url, endpoint.api_key)
        with pytest.raises(ProbeError):
            asked.generate_one(1)
        for source in (first, second)[:reporters]:
            asyncio.run(source.report_wedged(endpoint.incarnation, "no token for 60 s"))
        assert first.wait(newer_than=1).incarnation == 2
        assert second.wait(newer_than=1).incarnation == 2
        last = state_of(workspace).last
        assert last is not None
        assert last.cause == "wedged"
        asyncio.run(first.report_wedged(1, "an old report"))
        time.sleep(2)
        assert state_of(workspace).incarnation == 2
    assert state_of(workspace).restarts == 1


def test_a_slow_answer_under_load_is_no_death(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    with hold(workspace, fake(silent_s=1, env={"FAKE_ANSWER_S": "0.9"}), "one/alpha", stop) as source:
        source.wait()
        time.sleep(5)
        assert state_of(workspace).state == "ready"
        assert state_of(workspace).incarnation == 1


def test_waiting_is_bounded_where_it_is_asked_to_be(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    with hold(workspace, fake(), "one/alpha", stop) as source:
        source.wait()
        with pytest.raises(ServerGone, match="not ready after 1 s"):
            asyncio.run(source.endpoint(newer_than=1, timeout_s=1))
        assert asyncio.run(source.endpoint()).incarnation == 1


def test_logs_are_kept_apart_and_private(workspace: Workspace, fake: Any, stop: threading.Event) -> None:
    comes_up(workspace, fake(), stop)
    log = ServerFolder.of(workspace).log(1)
    assert log.stat().st_mode & 0o777 == 0o600
    until(lambda: "ready to roll" in log.read_text())
