from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

import draftmill
from draftmill.jobs.bundle import build, hash_sources, read_sources


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the package, to be changed."""
    root = tmp_path / "include"
    shutil.copytree(Path(draftmill.__file__).parent, root / "draftmill", ignore=shutil.ignore_patterns("__pycache__"))
    return root


def test_same_sources_same_bytes_whenever_and_wherever(sources: Path, tmp_path: Path) -> None:
    first = build(tmp_path / "one", sources)
    for path in sources.rglob("*.py"):
        os.utime(path, (time.time(), 1_000_000_000))
        path.chmod(0o600)
    (sources / "draftmill" / "__pycache__").mkdir()
    (sources / "draftmill" / "__pycache__" / "cli.cpython-311.pyc").write_bytes(b"compiled")
    (sources / "draftmill" / ".hidden").write_text("an editor's")
    second = build(tmp_path / "two", sources)
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_any_change_of_a_file_or_name_is_another_code(sources: Path) -> None:
    hashes = {hash_sources(read_sources(sources))}
    (sources / "draftmill" / "extra.txt").write_text("data of the package")
    hashes.add(hash_sources(read_sources(sources)))
    (sources / "draftmill" / "extra.txt").rename(sources / "draftmill" / "other.txt")
    hashes.add(hash_sources(read_sources(sources)))
    (sources / "draftmill" / "other.txt").write_text("other data")
    hashes.add(hash_sources(read_sources(sources)))
    assert len(hashes) == 4


def test_data_of_the_package_is_in_it_and_nothing_else(sources: Path, tmp_path: Path) -> None:
    (sources / "draftmill" / "spec" / "table.json").write_text("{}")
    (sources / "outside.py").write_text("raise SystemExit")
    with zipfile.ZipFile(build(tmp_path, sources)) as archive:
        names = archive.namelist()
    assert "draftmill/spec/table.json" in names
    assert [name for name in names if not name.startswith("draftmill/")] == ["__main__.py"]


def test_a_zipapp_has_the_hash_of_its_sources_and_its_name(sources: Path, tmp_path: Path) -> None:
    zipapp = build(tmp_path, sources)
    assert hash_sources(read_sources(zipapp)) == hash_sources(read_sources(sources))
    program = "from draftmill.jobs.bundle import code_hash; print(code_hash())"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=env | {"PYTHONPATH": str(zipapp)}, capture_output=True, check=True, cwd="/"
    )
    assert zipapp.name == f"draftmill-{answer.stdout.decode()[:16]}.pyz"


def test_the_running_code_is_what_is_built(sources: Path, tmp_path: Path) -> None:
    program = f"from draftmill.jobs.bundle import *; from pathlib import Path; print(code_hash()[:16], build(Path({str(tmp_path)!r})).name)"
    answer = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": str(sources)}, capture_output=True, check=True, cwd="/"
    )
    code, name = answer.stdout.decode().split()
    assert name == f"draftmill-{code}.pyz"


def test_a_zipapp_that_is_there_is_kept(sources: Path, tmp_path: Path) -> None:
    first = build(tmp_path, sources)
    inode = first.stat().st_ino
    assert build(tmp_path, sources).stat().st_ino == inode
