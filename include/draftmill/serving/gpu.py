"""GPU memory and who uses it, from NVML. A host without a driver simply has no GPUs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 1 << 20


@dataclass(frozen=True)
class Gpu:
    """One GPU; memory in bytes. `processes` maps pid to the bytes it holds (0 where the driver does not say)."""

    index: int
    uuid: str
    name: str
    total: int
    used: int
    processes: Mapping[int, int] = field(default_factory=dict)


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def all_gpus() -> list[Gpu]:
    """Every GPU of the host in NVML's order; empty where there is no driver or no NVML."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        return [_read(index) for index in range(pynvml.nvmlDeviceGetCount())]
    finally:
        pynvml.nvmlShutdown()


def _read(index: int) -> Gpu:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    processes: dict[int, int] = {}
    for lister in (pynvml.nvmlDeviceGetComputeRunningProcesses, pynvml.nvmlDeviceGetGraphicsRunningProcesses):
        with contextlib.suppress(pynvml.NVMLError):  # some drivers refuse one of the lists
            for entry in lister(handle):
                processes[entry.pid] = max(processes.get(entry.pid, 0), entry.usedGpuMemory or 0)
    return Gpu(
        index=index,
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        total=int(memory.total),
        used=int(memory.used),
        processes=processes,
    )


def visible(gpus: list[Gpu], env: Mapping[str, str] | None = None) -> list[Gpu]:
    """The GPUs that a process with `env` would see, in its order: CUDA_VISIBLE_DEVICES holds indices or UUID prefixes.

    As in CUDA, the list ends at the first entry that names no GPU.
    """
    wanted = (os.environ if env is None else env).get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return gpus
    seen: list[Gpu] = []
    for word in (part.strip() for part in wanted.split(",")):
        match = [gpu for gpu in gpus if (word.isdigit() and gpu.index == int(word)) or (len(word) > 4 and gpu.uuid.startswith(word))]
        if not match:
            break
        seen.append(match[0])
    return seen


def used_by_index(gpus: list[Gpu]) -> dict[str, int]:
    """Memory in use by GPU index, as state.json keeps it."""
    return {str(gpu.index): gpu.used for gpu in gpus}
