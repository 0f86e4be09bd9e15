"""The zipapp on the host: whole or absent under its name, uploaded once, repaired, and pruned by age."""

from __future__ import annotations

import concurrent.futures
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from draftmill_airflow.delivery import KEEP_S, ensure_code
from draftmill_airflow.errors import HostSettingsError
from draftmill_airflow.host import Host
from draftmill_airflow.ssh import connect


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_is_uploaded_once_runs_and_is_readable(host: Host, workspace: Path) -> None:
    with connect(host) as session:
        first, second = ensure_code(session), ensure_code(session, thorough=True)
    assert (first.uploaded, second.uploaded) == (True, False)
    assert first.zipapp == second.zipapp
    assert Path(first.zipapp).parent == workspace / "code"
    assert names_in(workspace / "code") == [Path(first.zipapp).name]
    assert Path(first.zipapp).stat().st_mode & 0o777 == 0o644
    version = subprocess.run([sys.executable, first.zipapp, "--version"], capture_output=True, check=True, text=True)
    assert version.stdout.strip()


def test_what_was_cut_short_is_replaced(host: Host) -> None:
    with connect(host) as session:
        path = Path(ensure_code(session).zipapp)
        whole = path.read_bytes()
        path.write_bytes(whole[:1000])
        assert ensure_code(session).uploaded
    assert path.read_bytes() == whole


def test_what_was_damaged_is_found_by_the_thorough_look(host: Host) -> None:
    with connect(host) as session:
        path = Path(ensure_code(session).zipapp)
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + b"!")
        assert not ensure_code(session).uploaded
        assert ensure_code(session, thorough=True).uploaded
    assert path.read_bytes() == whole


def test_several_tasks_may_deliver_at_the_same_time(host: Host, workspace: Path) -> None:
    def deliver(_: int) -> str:
        with connect(host) as session:
            return ensure_code(session).zipapp

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(deliver, range(4)))
    assert [Path(path).name for path in paths] == names_in(workspace / "code")


def test_old_code_goes_but_neither_young_code_nor_what_is_not_ours(host: Host, workspace: Path) -> None:
    code = workspace / "code"
    code.mkdir(parents=True)
    long_ago = time.time() - KEEP_S - 60
    for name, age in {
        "draftmill-old.pyz": long_ago,
        ".draftmill-x.pyz.1.part": long_ago,
        "draftmill-young.pyz": None,
        "notes.txt": long_ago,
    }.items():
        (code / name).touch()
        os.utime(code / name, None if age is None else (age, age))
    with connect(host) as session:
        kept = Path(ensure_code(session, thorough=True).zipapp).name
    assert names_in(code) == sorted([kept, "draftmill-young.pyz", "notes.txt"])


def test_code_that_is_asked_for_does_not_grow_old(host: Host) -> None:
    with connect(host) as session:
        path = Path(ensure_code(session).zipapp)
        os.utime(path, (0, 0))
        ensure_code(session)
    assert time.time() - path.stat().st_mtime < 60


def test_a_workspace_below_the_home_folder(host: Host, connection: Callable[..., Host], monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"draftmill-test-{os.getpid()}"
    at_home = connection(draftmill={"python": sys.executable, "workspace": f"~/{name}"})
    # A real SSH server takes the home folder from the user database, whatever HOME says here.
    homes = {Path.home(), Path(pwd.getpwuid(os.getuid()).pw_dir)}
    try:
        with connect(at_home) as session:
            path = Path(ensure_code(session).zipapp)
        assert path.parent in {home / name / "code" for home in homes}
        assert path.exists()
    finally:
        for home in homes:
            shutil.rmtree(home / name, ignore_errors=True)


def test_a_workspace_that_cannot_be_made_is_named(host: Host, workspace: Path) -> None:
    workspace.parent.mkdir(parents=True, exist_ok=True)
    workspace.write_text("a file is in the way")
    with connect(host) as session, pytest.raises(HostSettingsError, match=f"workspace {workspace}"):
        ensure_code(session)
