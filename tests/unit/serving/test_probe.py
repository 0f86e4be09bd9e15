from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from draftmill.serving.probe import Facts, Probe, ProbeError, kv_capacity


@pytest.mark.parametrize(
    ("info", "tokens"),
    [
        ({"max_total_num_tokens": 4578}, 4578),
        ({"internal_states": [{"memory_usage": {"token_capacity": 65536}}]}, 65536),
        ({"internal_states": [{"max_total_num_tokens": 100}, {"max_total_num_tokens": 90}]}, 90),
        ({"max_total_num_tokens": None, "internal_states": [{"memory_usage": None}, "?"]}, None),
        ({"max_total_num_tokens": True}, None),
        ({}, None),
    ],
)
def test_kv_capacity_has_several_names(info: dict[str, Any], tokens: int | None) -> None:
    assert kv_capacity(info) == tokens


class Pages(ThreadingHTTPServer):
    """A server that answers what its `pages` hold: (status, body) by path; a body that is not bytes is JSON."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages: dict[str, tuple[int, Any]] = {}
        self.seen: list[Any] = []

    def handle_error(self, *args: object) -> None:
        """A probe that gave up waiting has closed its connection: nothing to tell."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Pages

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        status, value = self.server.pages.get(self.path, (404, b""))
        if value == "never":
            time.sleep(30)
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.server.seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.do_GET()


@pytest.fixture
def pages() -> Iterator[Pages]:
    server = Pages()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def probe(pages: Pages) -> Iterator[Probe]:
    probe = Probe(pages.url, "key")
    yield probe
    probe.close()


def test_facts_under_newer_and_older_names(pages: Pages, probe: Probe) -> None:
    info = {"version": "0.5.23", "max_total_num_tokens": 9, "max_req_input_len": 7, "context_length": 2048}
    for prefix in ("/", "/get_"):
        pages.pages = {f"{prefix}model_info": (200, {"model_path": "/m", "served_model_name": "m"}), f"{prefix}server_info": (200, info)}
        assert probe.facts() == Facts("/m", "m", "0.5.23", 9, 2048, 7)


def test_a_build_that_says_little_is_still_known_by_its_model(pages: Pages, probe: Probe) -> None:
    pages.pages = {"/model_info": (200, {"model_path": "/m"}), "/server_info": (500, b"broken")}
    assert probe.facts() == Facts("/m", "/m", "unknown", None, None, None)


@pytest.mark.parametrize("answer", [(503, b""), (200, b"no json"), (200, []), (200, {"model_path": 5})])
def test_who_does_not_name_a_model_is_nobody(pages: Pages, probe: Probe, answer: tuple[int, Any]) -> None:
    pages.pages = {"/model_info": answer}
    assert probe.facts() is None


def test_one_token_is_asked_for_by_ids(pages: Pages, probe: Probe) -> None:
    pages.pages = {"/generate": (200, {"output_ids": [5], "meta_info": {}})}
    assert probe.generate_one(5) == [5]
    assert pages.seen == [{"input_ids": [1], "sampling_params": {"max_new_tokens": 1, "temperature": 0.0}}]
    pages.pages = {"/generate": (200, {"meta_info": {"output_ids": [6]}})}
    assert probe.generate_one(5) == [6]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((401, {"error": "Unauthorized"}), "HTTP 401"),
        ((200, b"no json"), "not JSON"),
        ((200, []), "no meta_info"),
        ((200, {"error": "inside a success"}), "no meta_info"),
        ((200, {"output_ids": [], "meta_info": {"finish_reason": {"type": "abort"}}}), "no token"),
        ((200, "never"), "no token within 0 s"),
    ],
)
def test_what_is_no_token(pages: Pages, probe: Probe, answer: tuple[int, Any], says: str) -> None:
    pages.pages = {"/generate": answer}
    with pytest.raises(ProbeError, match=says):
        probe.generate_one(0.4 if answer[1] == "never" else 5)


def test_nobody_there() -> None:
    probe = Probe("http://127.0.0.1:9", None)
    with pytest.raises(ProbeError, match="the connection broke"):
        probe.generate_one(1)
    assert probe.facts() is None
    assert not probe.healthy()
    assert probe.counters() == ()
    probe.close()


def test_health(pages: Pages, probe: Probe) -> None:
    assert probe.healthy()  # a build without the page
    pages.pages = {"/health": (503, b"")}
    assert not probe.healthy()
    pages.pages = {"/health": (200, b"")}
    assert probe.healthy()


def test_counters_hold_what_moves_with_tokens_only(pages: Pages, probe: Probe) -> None:
    load = {"num_used_tokens": 5, "num_waiting_reqs": 1, "timestamp": 1.0}
    metrics = 'sglang:generation_tokens_total{model_name="m"} 9.0\nsglang:http_requests_total{a="b"} 1.0\n'
    pages.pages = {"/v1/loads": (200, {"loads": [load]}), "/metrics": (200, metrics.encode())}
    before = probe.counters()
    pages.pages["/v1/loads"] = (200, {"loads": [load | {"num_waiting_reqs": 2, "timestamp": 2.0}]})
    pages.pages["/metrics"] = (200, metrics.replace("1.0", "2.0").encode())
    assert probe.counters() == before
    pages.pages["/metrics"] = (200, metrics.replace("9.0", "10.0").encode())
    assert probe.counters() != before
    pages.pages["/metrics"] = (200, metrics.encode())
    pages.pages["/v1/loads"] = (200, {"loads": [load | {"num_used_tokens": 6}]})
    assert probe.counters() != before
