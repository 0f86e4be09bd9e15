"""Keeps torch's rendezvous store on the loopback, where SGLang asks for it there.

torch.distributed takes the address 127.0.0.1 for its clients only; its server listens on every address of the machine. It does accept a
socket that listens already, so it is given one. Imported by the same `.pth` file as the stand-ins.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import socket
import sys
import types
from collections.abc import Sequence
from typing import Any

MODULE = "torch.distributed.rendezvous"


def listening(port: int) -> int:
    """A descriptor that listens on the loopback's `port`. OSError where the port is taken, in this process or another."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
        server.listen(128)
        return server.detach()


def patch(module: types.ModuleType) -> None:
    """Let the module make its stores with a socket of ours, where they are asked to serve the loopback."""
    real: Any = module.TCPStore

    def store(**options: Any) -> Any:
        if options.get("is_master") and options.get("host_name") in ("127.0.0.1", "localhost"):
            # A taken port is a store that this process serves already, and torch joins it.
            with contextlib.suppress(OSError):
                options["master_listen_fd"] = listening(options["port"])
        return real(**options)

    module.TCPStore = store  # type: ignore[attr-defined]


class PatchingFinder:
    """Import finder that patches MODULE right after its code has run, and then is gone."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """The module's own spec with a loader that patches; None for any other module."""
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            run = loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                run(module)
                patch(module)

            loader.exec_module = exec_module
        return spec


def install() -> None:
    """Put the finder first on the import path; harmless when done twice."""
    if MODULE not in sys.modules and not any(isinstance(finder, PatchingFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, PatchingFinder())


install()
