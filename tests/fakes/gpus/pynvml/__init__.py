"""A stand-in for nvidia-ml-py: GPUs as the JSON file named by FAKE_GPUS describes them, read anew at each initialisation."""

# ruff: noqa: N802 - the names are NVML's

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_gpus: list[dict[str, Any]] = []


class NVMLError(Exception):
    """What every call may raise."""


def nvmlInit() -> None:
    path = os.environ.get("FAKE_GPUS")
    if not path:
        raise NVMLError("driver not loaded")
    _gpus[:] = json.loads(Path(path).read_text())


def nvmlShutdown() -> None:
    _gpus.clear()


def nvmlDeviceGetCount() -> int:
    return len(_gpus)


def nvmlDeviceGetHandleByIndex(index: int) -> dict[str, Any]:
    return _gpus[index]


def nvmlDeviceGetMemoryInfo(handle: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(total=handle["total"], used=handle["used"])


def nvmlDeviceGetComputeRunningProcesses(handle: dict[str, Any]) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=int(pid), usedGpuMemory=used) for pid, used in handle.get("processes", {}).items()]


def nvmlDeviceGetGraphicsRunningProcesses(handle: dict[str, Any]) -> list[SimpleNamespace]:
    raise NVMLError("not supported")


def nvmlDeviceGetUUID(handle: dict[str, Any]) -> str:
    return handle["uuid"]


def nvmlDeviceGetName(handle: dict[str, Any]) -> bytes:
    return handle.get("name", "GPU").encode()
