"""A server that answers at once, as a process of its own: the client is measured, not the server.

    python -m benchmarks._answers PORT_FILE ANSWER_TOKENS

It knows just enough HTTP for that: every POST gets the same answer, made for prompts of PROMPT_TOKENS ids; every GET what a generation
job wants to know of its server.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

from benchmarks import ROOT

PROMPT_TOKENS = 400
VOCABULARY = 163_840
MODEL = "bench/model"
LOAD = {"num_running_reqs": 1, "num_waiting_reqs": 0, "num_used_tokens": 1_000, "max_total_num_tokens": 10**9, "gen_throughput": 1e6}


def answer(tokens: int) -> bytes:
    """The body of every answer."""
    ids = [100_000 + (number * 7_919) % 60_000 for number in range(tokens)]
    meta = {
        "id": "any",
        "finish_reason": {"type": "stop", "matched": ids[-1]},
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": tokens,
        "cached_tokens": 0,
    }
    return orjson.dumps({"text": "", "output_ids": ids, "meta_info": meta})


def _response(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


class _Answering(asyncio.Protocol):
    def __init__(self, bodies: dict[bytes, bytes]) -> None:
        self._bodies = bodies
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._buffer[:end])
            at = head.lower().find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._buffer) < end + 4 + length:
                return
            del self._buffer[: end + 4 + length]
            path = head.split(b" ", 2)[1]
            self._transport.write(self._bodies.get(path, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"))


async def _serve(port_file: Path, tokens: int) -> None:
    bodies = {
        b"/generate": _response(answer(tokens)),
        b"/model_info": _response(orjson.dumps({"model_path": MODEL})),
        b"/v1/loads": _response(orjson.dumps({"loads": [LOAD]})),
    }
    server = await asyncio.get_running_loop().create_server(lambda: _Answering(bodies), "127.0.0.1", 0, backlog=4096)
    port_file.write_text(str(server.sockets[0].getsockname()[1]))  # noqa: ASYNC240 - nothing else runs yet
    await server.serve_forever()


@contextlib.contextmanager
def answering(tokens: int) -> Iterator[str]:
    """Run the server; yields its base URL."""
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        process = subprocess.Popen([sys.executable, "-m", "benchmarks._answers", str(port_file), str(tokens)], cwd=ROOT)
        try:
            while not (port_file.exists() and port_file.read_text()):
                if process.poll() is not None:
                    raise RuntimeError("the answering server did not start")
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port_file.read_text()}"
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
