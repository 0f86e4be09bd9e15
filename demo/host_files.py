"""What lies on the demo's host before a run: samples in the file formats of their sources, the tiny model, and the configuration."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from demo.processes import MARK
from demo.state import ROOT, Demo, sglang_python
from draftmill.files import atomic_writer

SAMPLES = ROOT / "demo" / "samples"
CONFIG = ROOT / "demo" / "config"
SERVERS = ROOT / "include" / "config" / "servers.yaml"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a bundled sample file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def as_jsonl(path: Path, folder: Path) -> None:
    """As it is."""
    _write(folder / path.name, path.read_bytes())


def as_gzip(path: Path, folder: Path) -> None:
    """JSONL, compressed."""
    _write(folder / f"{path.name}.gz", gzip.compress(path.read_bytes(), mtime=0))


def as_array(path: Path, folder: Path) -> None:
    """One JSON array behind a byte-order mark, with Windows line ends: seen in published files."""
    text = "[\r\n" + ",\r\n".join(path.read_text(encoding="utf-8").splitlines()) + "\r\n]\r\n"
    _write(folder / f"{path.stem}.json", text.encode("utf-8-sig"))


def as_parquet(path: Path, folder: Path) -> None:
    """Parquet, in several row groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(read_rows(path)), buffer, row_group_size=64)
    _write(folder / f"{path.stem}.parquet", buffer.getvalue().to_pybytes())


FORMATS = {
    "B2_opencodeinstruct": as_parquet,
    "B3_magicoder_evol": as_gzip,
    "B4_mixturethoughts": as_parquet,
    "B6_ultrachat": as_parquet,
    "B7_sharegpt": as_array,
    "B8_sweagent": as_parquet,
}
"""The format that each source is published in, or close to it; JSONL where none is named."""


def _write(path: Path, data: bytes) -> None:
    """Write what has changed only: a source with a new time of change is read again."""
    if path.exists() and path.read_bytes() == data:
        return
    with atomic_writer(path) as stream:
        stream.write(data)


def write_samples(demo: Demo) -> None:
    """Put the samples on the host. The same samples leave the files untouched."""
    for path in sorted(SAMPLES.glob("*.jsonl")):
        FORMATS.get(path.stem, as_jsonl)(path, demo.host / "samples")


def write_config(demo: Demo) -> None:
    """The demo's configuration folder: its own campaign and data sets, and the project's server profiles."""
    shutil.copytree(CONFIG, demo.config, dirs_exist_ok=True)
    shutil.copy(SERVERS, demo.config / "servers.yaml")


def make_model(demo: Demo) -> None:
    """Train the tiny model with the Python that will serve it; returns at once where it is up to date."""
    command = [str(sglang_python()), "-W", "ignore", "-m", "demo.tiny_model", str(demo.host / "models" / "tiny")]
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(demo.home),
        "HF_HUB_OFFLINE": "1",
        "TQDM_DISABLE": "1",
        MARK: str(demo.root),  # so that `make demo-stop` finds it where its driver was killed
    }
    outcome = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if outcome.returncode:
        sys.exit("The tiny model could not be made; what went wrong is said above.")
