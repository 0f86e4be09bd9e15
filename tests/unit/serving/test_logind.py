"""Hosts that end a user's processes when the SSH connection closes are told before anything is started there."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmill.serving.logind import session_fault

SESSION = "0::/user.slice/user-1000.slice/session-3.scope\n"


def host(root: Path, settings: str, cgroup: str = SESSION, drop_in: str = "") -> Path:
    files = {"etc/systemd/logind.conf": settings, "proc/self/cgroup": cgroup, "run/systemd/logind.conf.d/10-site.conf": drop_in}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_killing_host_is_told_with_its_remedy(tmp_path: Path) -> None:
    fault = session_fault(host(tmp_path, "[Login]\n#NAutoVTs=6\nKillUserProcesses=yes\n"), "alice")
    assert fault is not None
    assert "ends everything alice started" in fault
    assert "KillExcludeUsers=root alice" in fault


def test_a_drop_in_counts_more_than_the_main_file(tmp_path: Path) -> None:
    assert session_fault(host(tmp_path, "[Login]\nKillUserProcesses=no\n", drop_in="[Login]\nKillUserProcesses=true\n"), "alice")


@pytest.mark.parametrize(
    ("settings", "user"),
    [
        ("", "alice"),
        ("[Login]\nKillUserProcesses=no\n", "alice"),
        ("[Login]\n#KillUserProcesses=yes\n", "alice"),
        ("[Login]\nKillUserProcesses=yes\n", "root"),
        ("[Login]\nKillUserProcesses=yes\nKillExcludeUsers=bob alice\n", "alice"),
        ("[Login]\nKillUserProcesses=yes\nKillOnlyUsers=bob\n", "alice"),
        ("not a configuration\n", "alice"),
    ],
)
def test_other_hosts_pass(tmp_path: Path, settings: str, user: str) -> None:
    assert session_fault(host(tmp_path, settings), user) is None


def test_a_process_outside_of_sessions_is_safe(tmp_path: Path) -> None:
    assert session_fault(host(tmp_path, "[Login]\nKillUserProcesses=yes\n", cgroup="0::/system.slice/ssh.service\n"), "alice") is None


def test_a_host_without_systemd_passes(tmp_path: Path) -> None:
    assert session_fault(tmp_path, "alice") is None
