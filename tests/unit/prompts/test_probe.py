"""What the server says about its tokenizer, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from draftmill.errors import PermanentError
from draftmill.prompts.probe import check_server
from draftmill.prompts.render import Renderer
from draftmill.prompts.tokenizer import LoadedTokenizer

PROBE = {"text": "<think>q</think>", "input_ids": [7, 8, 9]}
Serve = Callable[[int, Any], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that answers every POST with a code and a JSON value; returns its address."""
    servers = []

    def start(code: int, value: Any) -> str:
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert asked["text"] == PROBE["text"]
                assert self.headers["Authorization"] == "Bearer key"
                body = json.dumps(value).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def said(*ids: int) -> dict[str, Any]:
    return {"text": "x", "output_ids": [1], "meta_info": {"input_token_logprobs": [[None, number, None] for number in ids]}}


def test_the_same_ids(serve: Serve) -> None:
    assert check_server(serve(200, said(7, 8, 9)), "key", PROBE)


@pytest.mark.parametrize("theirs", [(7, 8), (7, 8, 9, 9), (7, 1, 9), ()])
def test_other_ids(serve: Serve, theirs: tuple[int, ...]) -> None:
    if not theirs:
        assert not check_server(serve(200, said()), "key", PROBE)
        return
    with pytest.raises(PermanentError, match=f"makes {len(theirs)} tokens .* our tokenizer 3"):
        check_server(serve(200, said(*theirs)), "key", PROBE)


@pytest.mark.parametrize("answer", [(503, {"error": "full"}), (200, {"error": "x"}), (200, {"meta_info": {}}), (200, [1])])
def test_a_server_that_does_not_say(serve: Serve, answer: tuple[int, Any]) -> None:
    assert not check_server(serve(*answer), "key", PROBE)


def test_nobody_there() -> None:
    assert not check_server("http://127.0.0.1:9", "key", PROBE)


def test_the_probe_of_a_tokenizer_has_control_tokens(loaded: LoadedTokenizer) -> None:
    probe = Renderer(loaded, "plain").about["probe"]
    assert loaded.about["think_ids"]["<think>"] in probe["input_ids"]
    assert loaded.tokenizer.decode(probe["input_ids"]) == probe["text"]
