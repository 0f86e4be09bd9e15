"""The simulated server beside the real SGLang: the same questions, answers of the same form."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import requests

from draftmill.serving.ports import free_port
from tests.tiny_model import build

ROOT = Path(__file__).resolve().parents[3]
PYTHON = Path(os.environ.get("DRAFTMILL_SGLANG_PYTHON") or ROOT / ".venv-sglang" / "bin" / "python")
SHIMS = f"{ROOT / 'tests' / 'fakes' / 'cpu'}:{ROOT / 'demo' / 'cpu_shim'}"
READY = "The server is fired up and ready to roll!"
KEY = "a-key"

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason=f"no SGLang environment at {PYTHON}; `make setup` makes one"),
]


@dataclass
class Served:
    """A server process: url, process, and what it is called in failures."""

    name: str
    url: str
    process: subprocess.Popen[bytes]

    def ask(self, method: str, path: str, body: Any = None, key: str | None = KEY, **options: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return requests.request(method, self.url + path, json=body, headers=headers, timeout=60, **options)

    def generate(self, ids: list[int], rid: str | None = None, **sampling: Any) -> requests.Response:
        body = {"input_ids": ids, "sampling_params": sampling} | ({"rid": rid} if rid else {})
        return self.ask("POST", "/generate", body)


def _start(name: str, command: list[str], port: int, environment: dict[str, str], log: Path) -> Served:
    with log.open("wb") as stream:
        process = subprocess.Popen(command, env=os.environ | environment, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)
    deadline = time.monotonic() + 240
    while READY not in log.read_text(errors="replace"):
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
        time.sleep(0.2)
    return Served(name, f"http://127.0.0.1:{port}", process)


def _end(served: Served) -> None:
    if served.process.poll() is None:
        os.killpg(served.process.pid, signal.SIGKILL)
    served.process.wait()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Served]]:
    """[the real one, the simulated one], with the same model, context, cache and key."""
    folder = tmp_path_factory.mktemp("servers")
    model = build(str(PYTHON), folder / "tiny")
    real_port, simulated_port = free_port("127.0.0.1"), free_port("127.0.0.1")
    flags = ["--device", "cpu", "--attention-backend", "torch_native", "--mem-fraction-static", "0.2", "--max-total-tokens", "65536"]
    flags += ["--sleep-on-idle", "--enable-metrics", "--max-queued-requests", "64", "--api-key", KEY, "--port", str(real_port)]
    real = _start(
        "sglang",
        [str(PYTHON), "-m", "sglang.launch_server", "--model-path", str(model), *flags],
        real_port,
        {"SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": SHIMS},
        folder / "real.log",
    )
    try:
        options = ["--port", str(simulated_port), "--vocab-size", "1024", "--context-length", "2048", "--kv-tokens", "65536"]
        options += ["--model-path", str(model), "--api-key-env", "SIMULATED_KEY", "--speedup", "20", "--max-queued-requests", "64"]
        simulated = _start(
            "simulated",
            [sys.executable, "-m", "draftmill.simulator", "serve", *options],
            simulated_port,
            {"PYTHONPATH": str(ROOT / "include"), "SIMULATED_KEY": KEY},
            folder / "simulated.log",
        )
        try:
            yield [real, simulated]
        finally:
            _end(simulated)
    finally:
        _end(real)


def same(both: list[Served], what: Any) -> Any:
    """What both servers answer to `what(server)`, which must be equal."""
    real, simulated = what(both[0]), what(both[1])
    assert simulated == real
    return real


def test_an_answer(both: list[Served]) -> None:
    def form(served: Served) -> Any:
        reply = served.generate([5, 6, 7], rid="one", max_new_tokens=12, temperature=1.0, top_p=0.9, ignore_eos=True)
        body = reply.json()
        meta = body["meta_info"]
        assert len(body["output_ids"]) == meta["completion_tokens"] == 12
        return reply.status_code, {"text", "output_ids", "meta_info"} <= set(body), meta["id"], meta["prompt_tokens"], meta["finish_reason"]

    assert same(both, form) == (200, True, "one", 3, {"type": "length", "length": 12})
    wanted = {"id", "finish_reason", "prompt_tokens", "completion_tokens", "cached_tokens", "weight_version"}
    assert all(wanted <= set(served.generate([5], max_new_tokens=1).json()["meta_info"]) for served in both)


def test_max_new_tokens_defaults_to_128(both: list[Served]) -> None:
    assert same(both, lambda served: served.generate([5, 6], ignore_eos=True).json()["meta_info"]["completion_tokens"]) == 128


def test_a_stop_id_is_among_the_output_ids(both: list[Served]) -> None:
    for served in both:
        for number in range(200):
            body = served.generate([5, number], max_new_tokens=600).json()
            if body["meta_info"]["finish_reason"]["type"] == "stop":
                assert body["meta_info"]["finish_reason"]["matched"] == body["output_ids"][-1]
                break
        else:
            pytest.fail(f"{served.name}: no answer stopped by itself")


@pytest.mark.parametrize(
    "sampling",
    [{"max_new_tokens": 5, "heat": 1}, {"max_new_tokens": 5, "temperature_": 0.5}],
)
def test_unknown_sampling_parameters_are_a_plain_string_error(both: list[Served], sampling: dict[str, Any]) -> None:
    assert same(both, lambda served: served.generate([5], **sampling).status_code) == 400
    assert all(isinstance(served.generate([5], **sampling).json()["error"], str) for served in both)


@pytest.mark.parametrize(
    ("prompt", "new", "says"),
    [(3_000, 5, "is longer than the model's context length (2048 tokens)"), (2_000, 100, "Requested token count exceeds")],
)
def test_what_does_not_fit_is_refused(both: list[Served], prompt: int, new: int, says: str) -> None:
    for served in both:
        reply = served.generate([5] * prompt, max_new_tokens=new)
        assert reply.status_code == 400, served.name
        assert says in reply.json()["error"]["message"], served.name


def test_unknown_fields_beside_the_sampling_are_ignored(both: list[Served]) -> None:
    body = {"input_ids": [5], "sampling_params": {"max_new_tokens": 2, "ignore_eos": True}, "no_such_field": 1}
    assert same(both, lambda served: served.ask("POST", "/generate", body).status_code) == 200


def test_the_key_is_asked_for_in_the_same_places(both: list[Served]) -> None:
    def open_and_closed(served: Served) -> list[int]:
        paths = ["/health", "/ready", "/metrics", "/model_info", "/server_info", "/v1/loads"]
        return [served.ask("GET", path, key=None).status_code for path in paths]

    assert same(both, open_and_closed) == [200, 200, 200, 401, 401, 401]
    assert same(both, lambda served: served.ask("GET", "/model_info", key="wrong").json()) == {"error": "Unauthorized"}


def test_information(both: list[Served]) -> None:
    for path in ("/model_info", "/get_model_info"):
        assert same(both, lambda served, path=path: [served.ask("GET", path).json()[name] for name in ("model_path", "served_model_name")])
    real_names = set(both[0].ask("GET", "/model_info").json())
    assert set(both[1].ask("GET", "/model_info").json()) <= real_names

    def capacity(served: Served) -> Any:
        infos = [served.ask("GET", path).json() for path in ("/server_info", "/get_server_info")]
        return [
            (
                info["max_total_num_tokens"],
                info["internal_states"][0]["memory_usage"]["token_capacity"],
                info["status"],
                info["version"],
                info["max_req_input_len"],
            )
            for info in infos
        ]

    assert same(both, capacity)[0][0] == 65_536


def test_loads_and_metrics_have_the_same_names(both: list[Served]) -> None:
    real, simulated = [served.ask("GET", "/v1/loads").json() for served in both]
    assert set(simulated) <= set(real)
    assert set(simulated["loads"][0]) <= set(real["loads"][0])

    def names(served: Served) -> set[str]:
        lines = served.ask("GET", "/metrics").text.splitlines()
        return {line.split("{")[0].split(" ")[0] for line in lines if line.startswith("sglang:")}

    for served in both:
        served.generate([5], max_new_tokens=2)
    missing = names(both[1]) - names(both[0])
    # Counters that count something that has not happened yet are not listed by the real one.
    assert missing <= {"sglang:num_aborted_requests_total", "sglang:num_retracted_requests_total"}


def wait_until_it_runs(served: Served) -> None:
    while served.ask("GET", "/v1/loads").json()["loads"][0]["num_running_reqs"] < 1:
        time.sleep(0.01)


def test_an_abort_answers_with_200_and_reason_abort(both: list[Served]) -> None:
    def aborted(served: Served) -> Any:
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(served.generate, [5, 6], "to-abort", max_new_tokens=1_900, ignore_eos=True)
            wait_until_it_runs(served)
            duplicate = served.generate([5], "to-abort", max_new_tokens=2)
            assert served.ask("POST", "/abort_request", {"rid": "to-abort"}).status_code == 200
            reply = running.result()
        assert duplicate.status_code == 400, served.name
        assert "Duplicate request ID" in duplicate.json()["error"]["message"], served.name
        return reply.status_code, reply.json()["meta_info"]["finish_reason"]["type"]

    assert same(both, aborted) == (200, "abort")


def test_a_stream_repeats_all_ids(both: list[Served]) -> None:
    for served in both:
        body = {"input_ids": [5], "stream": True, "sampling_params": {"max_new_tokens": 60, "ignore_eos": True}}
        reply = served.ask("POST", "/generate", body, stream=True)
        lines = [line[6:] for line in reply.iter_lines() if line.startswith(b"data: ")]
        assert lines[-1] == b"[DONE]", served.name
        parts = [json.loads(line)["output_ids"] for line in lines[:-1]]
        assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(parts)), served.name
        assert len(parts[-1]) == 60, served.name


def test_sigterm_drains(both: list[Served]) -> None:
    """The last test: it ends both servers."""
    for served in both:
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(served.generate, [5], max_new_tokens=1_500, ignore_eos=True)
            wait_until_it_runs(served)
            served.process.send_signal(signal.SIGTERM)
            while served.ask("GET", "/health").status_code != 503:
                time.sleep(0.01)
            late = served.generate([5], max_new_tokens=2, ignore_eos=True)
            first = running.result()
        assert late.status_code == 200, served.name
        assert first.json()["meta_info"]["completion_tokens"] == 1_500, served.name
        assert served.process.wait(timeout=90) == 0, served.name
