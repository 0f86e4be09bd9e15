"""Stand-ins for GPU-only packages, in a process of their own: this one must not be told that it has Triton."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from demo.environments import SHIM


def run(code: str) -> str:
    """The output of `code` in a fresh interpreter that has the stand-ins, as the .pth file of the SGLang environment gives it."""
    program = f"import sys; sys.path.insert(0, {str(SHIM)!r}); import gpu_stand_ins\n{code}"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_names_can_be_imported_however_deep() -> None:
    assert run("from triton.language.extra import libdevice; import triton.language as tl; print(tl.constexpr, libdevice.fast_expf)") == (
        "<stand-in for triton.language.constexpr> <stand-in for triton.language.extra.libdevice.fast_expf>"
    )


def test_kernels_can_be_decorated_annotated_and_subclassed_from() -> None:
    code = """
import triton, triton.language as tl
@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=4)], key=["n"])
@triton.jit
def kernel(x, n: tl.constexpr, y: "int" = 1, z: tl.tensor | None = None):
    "What it does."
class Other(tl.core.base): pass
print(type(kernel).__name__, isinstance(3, tl.constexpr), Other.__mro__[1].__name__)
@triton.jit
def plain(x): "What it does."
print(plain.__name__, plain.__doc__)
"""
    assert run(code).splitlines() == ["Kernel False object", "plain What it does."]


@pytest.mark.parametrize(
    "call",
    [
        "import triton; triton.jit(len)[(1,)](3)",
        "import triton; triton.jit(len)(3)",
        "import sgl_kernel; sgl_kernel.scaled_mm(1, 2)",
        "import torchvision; torchvision.io.decode_jpeg(b'')",
    ],
)
def test_whatever_would_compute_something_raises(call: str) -> None:
    assert "needs a GPU build" in run(f"try:\n    exec({call!r})\nexcept RuntimeError as error:\n    print(error)")


def test_who_asks_first_is_told_that_the_package_is_absent() -> None:
    assert run("import importlib.util as u; print(u.find_spec('triton'), u.find_spec('json') is not None)") == "None True"


def test_no_gpu_driver_is_claimed_and_plain_arithmetic_is_right() -> None:
    code = "import triton, triton.runtime; print(hasattr(triton.runtime.driver, 'active'), triton.cdiv(7, 2), triton.next_power_of_2(9))"
    assert run(code) == "False 4 16"


def test_the_patching_finder_leaves_other_modules_alone_and_goes_after_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "torch" / "distributed"
    folder.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").touch()
    (folder / "__init__.py").touch()
    # A stand-in for torch's store, which is not in this environment: it tells what it was given.
    (folder / "rendezvous.py").write_text("def TCPStore(**options): return options")
    code = f"""
import socket, loopback_store, json
sys.path.insert(0, {str(tmp_path)!r})
import torch.distributed.rendezvous as rendezvous
assert not any(isinstance(finder, loopback_store.PatchingFinder) for finder in sys.meta_path)
given = rendezvous.TCPStore(host_name="127.0.0.1", port=0, is_master=True)
print(socket.socket(fileno=given["master_listen_fd"]).getsockname()[0])
print(rendezvous.TCPStore(host_name="127.0.0.1", port=0, is_master=False))
print(rendezvous.TCPStore(host_name="10.0.0.1", port=0, is_master=True))
"""
    assert run(code).splitlines() == [
        "127.0.0.1",
        "{'host_name': '127.0.0.1', 'port': 0, 'is_master': False}",
        "{'host_name': '10.0.0.1', 'port': 0, 'is_master': True}",
    ]


def test_a_real_package_wins() -> None:
    code = """
import pathlib, tempfile
folder = tempfile.mkdtemp()
pathlib.Path(folder, "triton.py").write_text("REAL = True")
sys.path.append(folder)
import triton
print(triton.REAL)
"""
    assert run(code) == "True"
