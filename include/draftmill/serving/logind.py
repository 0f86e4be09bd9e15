"""Whether systemd-logind ends what a user started over SSH as soon as the connection closes (logind.conf(5), KillUserProcesses)."""

from __future__ import annotations

import configparser
import getpass
from pathlib import Path

_FOLDERS = ("usr/lib/systemd", "run/systemd", "etc/systemd")
"""Where logind.conf and its drop-ins lie, the weakest first."""


def session_fault(root: Path = Path("/"), user: str | None = None) -> str | None:
    """A sentence where jobs would be killed with the SSH session that starts them.

    A process outside of a login session's scope is safe, and so is one on a host without systemd.
    """
    settings = _settings(root)
    user = user or getpass.getuser()
    if settings.get("killuserprocesses", "no").lower() not in ("yes", "true", "on", "1") or not _in_a_session(root):
        return None
    only, excluded = settings.get("killonlyusers", "").split(), settings.get("killexcludeusers", "root").split()
    if user in excluded or (only and user not in only):
        return None
    return (
        f"systemd-logind ends everything {user} started when an SSH connection closes (KillUserProcesses=yes), jobs and server included;"
        f" have KillExcludeUsers=root {user} set in /etc/systemd/logind.conf"
    )


def _settings(root: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    mains = [root / folder / "logind.conf" for folder in _FOLDERS]
    extras = sorted((path for folder in _FOLDERS for path in (root / folder / "logind.conf.d").glob("*.conf")), key=lambda path: path.name)
    for path in [*mains, *extras]:
        parser = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
        try:
            parser.read_string(path.read_text(errors="replace"))
        except (OSError, configparser.Error):
            continue  # absent, or not for us to read; logind itself passes over what it cannot read
        if parser.has_section("Login"):
            found |= {name: value or "" for name, value in parser.items("Login")}
    return found


def _in_a_session(root: Path) -> bool:
    """Whether this process is in the control group of a login session, which is what logind ends."""
    try:
        return "/session-" in (root / "proc/self/cgroup").read_text()
    except OSError:
        return False
