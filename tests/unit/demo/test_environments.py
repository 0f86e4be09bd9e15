"""Environments made from lock files: once, continued after an interruption, anew after a change."""

from __future__ import annotations

from pathlib import Path

import pytest
from demo import environments
from demo.environments import Environment


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    (tmp_path / "lock.txt").write_text("# nothing to install\n")
    return Environment("test", tmp_path / "env", (("-r", "lock.txt"),), "nothing", "import sys; sys.draftmill_was_here = True\n")


def test_made_once_continued_when_torn_and_anew_when_the_lock_changes(environment: Environment, capsys: pytest.CaptureFixture[str]) -> None:
    environments.make(environment)
    assert environment.stamp() == environment.digest()
    assert "Installed env" in capsys.readouterr().out
    environments.run([str(environment.python), "-c", "import sys; sys.exit(not sys.draftmill_was_here)"])
    stray = environment.folder / "stray"
    stray.touch()

    environments.make(environment)
    assert capsys.readouterr().out == ""

    (environment.folder / environments.STAMP).unlink()
    environments.make(environment)
    assert stray.exists()

    (environments.ROOT / "lock.txt").write_text("# another lock\n")
    environments.make(environment)
    assert not stray.exists()
    assert environment.stamp() == environment.digest()


def test_a_failed_step_leaves_no_stamp_and_says_what_to_do(environment: Environment, capfd: pytest.CaptureFixture[str]) -> None:
    (environments.ROOT / "lock.txt").write_text("./there-is-no-such-package\n")
    with pytest.raises(SystemExit, match="run the same make target again"):
        environments.make(environment)
    assert environment.stamp() == ""
    capfd.readouterr()


def test_the_locks_name_no_local_build_and_nothing_for_a_gpu() -> None:
    lock = (Path(environments.__file__).parent.parent / "requirements-sglang-cpu.txt").read_text().splitlines()
    assert "torch==2.13.0" in lock
    assert not [line for line in lock if "+" in line or line.startswith(("nvidia-cu", "cuda", "triton"))]
