from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from draftmill.serving.checks import without
from draftmill.serving.gpu import MIB, Gpu, all_gpus, used_by_index, visible
from draftmill.serving.ground import gpu_count_fault, gpu_memory_faults
from draftmill.spec.server import ServerProfile

FAKES = Path(__file__).resolve().parents[2] / "fakes" / "gpus"


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(FAKES))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    importlib.invalidate_caches()
    path = tmp_path / "gpus.json"
    monkeypatch.setenv("FAKE_GPUS", str(path))
    yield path
    sys.modules.pop("pynvml", None)


def gpu(index: int, used: int = 0, processes: dict[int, int] | None = None) -> Gpu:
    return Gpu(
        index, f"GPU-{index}{index}{index}", "RTX", 98_304 * MIB, used * MIB, {pid: size * MIB for pid, size in (processes or {}).items()}
    )


def profile(**changes: Any) -> ServerProfile:
    return ServerProfile.model_validate({"model_path": "m", **changes})


def test_gpus_are_read_with_their_processes(nvml: Path) -> None:
    nvml.write_text(
        json.dumps([{"uuid": "GPU-a", "name": "RTX", "total": 10, "used": 4, "processes": {"7": 3}}, {"uuid": "b", "total": 1, "used": 0}])
    )
    assert all_gpus() == [Gpu(0, "GPU-a", "RTX", 10, 4, {7: 3}), Gpu(1, "b", "GPU", 1, 0, {})]
    assert used_by_index(all_gpus()) == {"0": 4, "1": 0}


def test_a_host_without_a_driver_has_no_gpus(nvml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAKE_GPUS")
    assert nvml.exists() is False
    assert all_gpus() == []


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [(None, [0, 1, 2]), ("", []), ("2,0", [2, 0]), ("1,9,2", [1]), ("GPU-111", [1]), ("-1", [])],
)
def test_visible_devices(wanted: str | None, seen: list[int]) -> None:
    env = {} if wanted is None else {"CUDA_VISIBLE_DEVICES": wanted}
    assert [entry.index for entry in visible([gpu(0), gpu(1), gpu(2)], env)] == seen


def test_too_few_gpus() -> None:
    assert gpu_count_fault(profile(tensor_parallel=2), [gpu(0), gpu(1)], {}) is None
    fault = gpu_count_fault(profile(tensor_parallel=2), [gpu(0), gpu(1)], {"CUDA_VISIBLE_DEVICES": "1"})
    assert fault is not None
    assert fault.startswith("tensor_parallel is 2, but this host shows 1 GPU (CUDA_VISIBLE_DEVICES=1);")


def test_memory_in_use_is_a_fault_only_where_it_leaves_too_little() -> None:
    assert gpu_memory_faults(profile(), [gpu(0, 5000), gpu(1, 90_000)], {}) == []  # tensor_parallel 1 uses the first alone
    (fault,) = gpu_memory_faults(profile(tensor_parallel=2), [gpu(0, 5000), gpu(1, 90_000, {1: 80_000, 2: 10_000})], {})
    assert fault.startswith("GPU 1 has 8,304 MiB free and memory_fraction 0.88 needs 86,507: pid 1 of root")
    assert "with 80,000 MiB, pid 2" in fault
    assert "nobody the driver can name" in gpu_memory_faults(profile(), [gpu(0, 90_000)], {})[0]


def test_memory_of_our_own_server_does_not_count() -> None:
    assert without(gpu(0, 90_000, {5: 88_000, 6: 1000}), {5}) == gpu(0, 2000, {6: 1000})
