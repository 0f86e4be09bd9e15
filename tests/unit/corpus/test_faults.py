"""A kill at any moment and a full disk leave the old corpus whole, and nothing half done under a final name."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill.corpus import merge, tokenize
from draftmill.corpus.manifest import read_manifest
from draftmill.corpus.verify import verify
from draftmill.errors import TemporaryError
from tests.unit.corpus.campaign import Campaign, make_campaign

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = [sys.executable, str(Path(__file__).with_name("kill_program.py"))]
CORPUS = {"exports": ["jsonl", "arrow"], "held_out_fraction": 0.2, "draft_vocab_size": 100}


def prepared(root: Path) -> tuple[Campaign, str]:
    """A campaign with a corpus, and records that have grown since. Also the hash of the manifest that is there."""
    campaign = make_campaign(root, "alpha", corpus=CORPUS)
    campaign.fill("alpha", 40, 20)
    tokenize.run(campaign.ctx("alpha"))
    first = merge.run(campaign.ctx())["manifest_sha256"]
    campaign.fill("alpha", 40, 40)
    tokenize.run(campaign.ctx("alpha"))
    return campaign, first


class Killer:
    """Merges in another process. `operations`: how many a whole one has."""

    def __init__(self, program: subprocess.Popen[str], workspace: Path) -> None:
        self._program = program
        self.operations = int(self._ask(str(workspace)))

    def _ask(self, line: str) -> str:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(f"{line}\n")
        self._program.stdin.flush()
        return self._program.stdout.readline().strip()

    def kill(self, workspace: Path, moment: int) -> None:
        """Merge, and be killed at the given operation."""
        assert self._ask(f"{workspace} {moment}") == "killed", f"moment {moment}"


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    root = tmp_path_factory.mktemp("killer")
    campaign, _ = prepared(root / "w")
    plan = root / "plan.json"
    plan.write_text(campaign.plan.model_dump_json())
    paths = os.pathsep.join([str(ROOT), str(ROOT / "include")])
    env = os.environ | {"PYTHONPATH": paths, "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error"}
    program = subprocess.Popen([*PROGRAM, str(plan)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    with program:
        yield Killer(program, campaign.root)
        assert program.stdin is not None
        program.stdin.close()


def test_a_kill_at_any_moment_leaves_a_whole_corpus(tmp_path: Path, killer: Killer) -> None:
    campaign, first = prepared(tmp_path / "original")
    assert killer.operations > 40
    seen = set()
    for moment in range(killer.operations):
        workspace = Path(shutil.copytree(campaign.root, tmp_path / "w", symlinks=True))
        killer.kill(workspace, moment)
        report = verify(workspace / "campaigns/test/corpus")
        assert report.faults == [], f"moment {moment}"
        seen.add((report.manifest_sha256 == first, report.rows + report.held_out_rows))
        shutil.rmtree(workspace)
    assert seen == {(True, 20), (False, 40)}


def test_the_merge_after_a_kill_finishes_and_clears_away(tmp_path: Path, killer: Killer) -> None:
    campaign, first = prepared(tmp_path / "w")
    corpora = campaign.folder.root / "corpora"
    for moment in (10, 25, 40):
        killer.kill(campaign.root, moment)
    assert list(corpora.glob(".building-*")) != []
    result = merge.run(campaign.ctx())
    assert result["rows"] + result["held_out_rows"] == 40
    assert sorted(path.name for path in corpora.iterdir()) == sorted([".lock", first[:16], result["manifest_sha256"][:16]])


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB, which only root can mount."""
    root = tmp_path / "small"
    root.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(root)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield root
    subprocess.run(["umount", str(root)], check=True)


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As `ulimit -f` does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [100, 10_000])
def test_a_file_that_may_not_grow_is_as_a_full_disk(tmp_path: Path, size: int) -> None:
    campaign, first = prepared(tmp_path)
    with files_of_at_most(size), pytest.raises(TemporaryError, match=r"is full \(File too large\)"):
        merge.run(campaign.ctx())
    assert verify(campaign.folder.corpus).manifest_sha256 == first
    assert list((campaign.folder.root / "corpora").glob(".building-*")) == []


def fill_up_to(root: Path, free: int) -> Path:
    """Fill the file system but for `free` bytes."""
    path = root / "ballast"
    state = os.statvfs(root)
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as stream:
        stream.write(b"x" * (state.f_bavail * state.f_frsize - free))
    return path


@pytest.mark.parametrize("free_kib", [0, 8, 64, 160])
def test_a_full_disk_stops_the_merge_and_leaves_the_old_corpus(small: Path, free_kib: int) -> None:
    campaign, first = prepared(small)
    ballast = fill_up_to(small, free_kib * 1024)
    with pytest.raises(TemporaryError, match=r"is full \(.*\); free space and try again, what stood there before is unchanged"):
        merge.run(campaign.ctx())
    assert verify(campaign.folder.corpus).manifest_sha256 == first
    assert verify(campaign.folder.corpus).faults == []
    assert list((campaign.folder.root / "corpora").glob(".building-*")) == []
    ballast.unlink()
    result = merge.run(campaign.ctx())
    assert read_manifest(campaign.folder.corpus)["parent"] == first
    assert result["rows"] + result["held_out_rows"] == 40


@pytest.mark.parametrize("free_kib", [0, 8])
def test_a_full_disk_stops_tokenize_and_leaves_the_old_records(small: Path, free_kib: int) -> None:
    campaign, _ = prepared(small)
    campaign.change(quality={"truncated": "drop"})
    before = {path.name: path.read_bytes() for path in campaign.folder.records("alpha").parent.iterdir()}
    ballast = fill_up_to(small, free_kib * 1024)
    with pytest.raises(TemporaryError, match="is full"):
        tokenize.run(campaign.ctx("alpha"))
    after = {path.name: path.read_bytes() for path in campaign.folder.records("alpha").parent.iterdir()}
    assert after == before
    ballast.unlink()
    assert tokenize.run(campaign.ctx("alpha"))["rows_kept"] == 40
