"""A hub on the loopback interface: the part of the hub's protocol that reading a data set needs, spoken to by the real client libraries."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlparse

COMMIT = hashlib.sha1(b"the only commit", usedforsecurity=False).hexdigest()


class Hub:
    """Data sets by id, each a mapping of path to bytes. `requests` lists what was asked for."""

    def __init__(self, datasets: dict[str, dict[str, bytes]]) -> None:
        self.datasets = datasets
        self.requests: list[str] = []
        self.address = ""


class Handler(BaseHTTPRequestHandler):
    """One request. `hub` is set by the subclass that `serve` makes."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.hub.requests.append(f"{self.command} {self.path}")
        url = urlparse(self.path)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        if parts[:2] == ["api", "datasets"]:
            self._api(f"{parts[2]}/{parts[3]}", parts[4:], parse_qs(url.query))
        elif parts[0] == "datasets" and parts[3] == "resolve":
            self._file(f"{parts[1]}/{parts[2]}", parts[4], "/".join(parts[5:]))
        else:
            self._json({"error": "no such page"}, 404)

    do_HEAD = do_GET  # noqa: N815 - the base class looks for this name

    def do_POST(self) -> None:
        """Only one call is a POST: what is at these paths?"""
        self.hub.requests.append(f"POST {self.path}")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        parts = [unquote(part) for part in urlparse(self.path).path.strip("/").split("/")]
        asked = json.loads(body)["paths"] if body.startswith("{") else parse_qs(body).get("paths", [])
        entries = {str(entry["path"]): entry for entry in _entries(self.hub.datasets[f"{parts[2]}/{parts[3]}"])}
        self._json([entries[path] for path in asked if path in entries])

    def _api(self, name: str, rest: list[str], query: dict[str, list[str]]) -> None:
        if name not in self.hub.datasets:
            self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        elif len(rest) > 1 and rest[1] not in ("main", COMMIT):
            self._json({"error": "Invalid rev id"}, 404, {"X-Error-Code": "RevisionNotFound"})
        elif rest[:1] == ["tree"]:
            self._tree(self.hub.datasets[name], "/".join(rest[2:]), recursive=query.get("recursive") == ["true"])
        else:
            siblings = [{"rfilename": path} for path in self.hub.datasets[name]]
            facts = {"private": False, "gated": False, "disabled": False, "tags": [], "downloads": 0, "likes": 0}
            self._json({"id": name, "_id": "1", "sha": COMMIT, "siblings": siblings, **facts})

    def _tree(self, files: dict[str, bytes], folder: str, *, recursive: bool) -> None:
        start = f"{folder}/" if folder else ""
        below = [entry for entry in _entries(files) if str(entry["path"]).startswith(start)]
        if not below:
            self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
            return
        self._json([entry for entry in below if recursive or "/" not in str(entry["path"]).removeprefix(start)])

    def _file(self, name: str, revision: str, path: str) -> None:
        data = self.hub.datasets.get(name, {}).get(path)
        if data is None or revision not in ("main", COMMIT):
            self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
            return
        headers = {"ETag": f'"{_oid(data)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        wanted = self.headers.get("Range")
        if not wanted:
            self._send(200, data, headers)
            return
        start, _, end = wanted.removeprefix("bytes=").partition("-")
        first, last = int(start), min(int(end or len(data) - 1), len(data) - 1)
        self._send(206, data[first : last + 1], headers | {"Content-Range": f"bytes {first}-{last}/{len(data)}"})

    def _json(self, value: object, code: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(code, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, code: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _entries(files: dict[str, bytes]) -> list[dict[str, object]]:
    """Files and folders as the hub lists them."""
    folders = sorted({"/".join(path.split("/")[:depth]) for path in files for depth in range(1, path.count("/") + 1)})
    return [
        *({"type": "directory", "path": path, "size": 0, "oid": "0" * 40} for path in folders),
        *({"type": "file", "path": path, "size": len(data), "oid": _oid(data)} for path, data in files.items()),
    ]


def _oid(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    """The hub, at `hub.address` while it runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("HubHandler", (Handler,), {"hub": hub}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        hub.address = f"http://127.0.0.1:{server.server_address[1]}"
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
