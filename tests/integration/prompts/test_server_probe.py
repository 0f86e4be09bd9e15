"""The probe against the real SGLang: it confirms its own tokenizer, and a different one is found out."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import requests

from draftmill.errors import PermanentError
from draftmill.layout import Workspace
from draftmill.prompts.probe import check_server
from draftmill.prompts.render import Renderer
from draftmill.prompts.tokenizer import load_tokenizer, tokenizer_request
from tests.plans import make_plan
from tests.tiny_model import build

ROOT = Path(__file__).resolve().parents[3]
PYTHON = Path(os.environ.get("DRAFTMILL_SGLANG_PYTHON") or ROOT / ".venv-sglang" / "bin" / "python")

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.slow,
    pytest.mark.timeout(600),  # loading takes minutes on a busy machine
    pytest.mark.skipif(not PYTHON.exists(), reason=f"no SGLang environment at {PYTHON}; `make setup` makes one"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(str(PYTHON), tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = "--device cpu --attention-backend torch_native --tp-size 1 --mem-fraction-static 0.2 --max-total-tokens 65536 --sleep-on-idle"
    command = [str(PYTHON), "-m", "sglang.launch_server", "--model-path", str(model), "--port", str(port), *flags.split()]
    env = {"SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "HF_HUB_OFFLINE": "1"}
    env["PYTHONPATH"] = f"{ROOT / 'tests' / 'fakes' / 'cpu'}:{ROOT / 'demo' / 'cpu_shim'}"
    log = tmp_path_factory.mktemp("log") / "server.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(command, env={**os.environ, **env}, stdout=stream, stderr=stream, start_new_session=True)
    try:
        _wait(f"http://127.0.0.1:{port}", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        members = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        for member in members:
            member.kill()
        process.kill()
        process.wait()


def _wait(base_url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until the server is healthy; it tells nobody when it is, so it is asked."""
    while process.poll() is None:
        if _healthy(base_url):
            return
        time.sleep(0.5)
    raise AssertionError(log.read_text()[-2000:])


def _healthy(base_url: str) -> bool:
    try:
        return requests.get(f"{base_url}/health", timeout=30).ok
    except requests.RequestException:
        return False


def test_the_server_confirms_its_own_tokenizer_and_no_other(server: str, model: Path) -> None:
    loaded = load_tokenizer(tokenizer_request(make_plan(profile={"model_path": str(model)}).server.profile, Workspace(model)))
    probe = Renderer(loaded, "plain").about["probe"]
    assert check_server(server, None, probe)
    with pytest.raises(PermanentError, match="so that both load the model's own tokenizer"):
        check_server(server, None, {**probe, "input_ids": [*probe["input_ids"][:-1], 5, 6]})
