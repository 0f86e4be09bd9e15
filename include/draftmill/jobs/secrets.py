"""Environment values that no log, command line or readable file may show. They lie in one file of mode 0600 in the workspace."""

from __future__ import annotations

import time
from collections.abc import Mapping

from draftmill.errors import PermanentError, TemporaryError
from draftmill.files import FileLock, read_json, write_json
from draftmill.layout import Workspace

_WAIT_S = 10


def read_secrets(workspace: Workspace) -> dict[str, str]:
    """What was stored last. PermanentError where the file belongs to somebody else."""
    try:
        value = read_json(workspace.secrets)
    except PermissionError:
        raise PermanentError(f"{workspace.secrets} cannot be read by this user; each user needs a workspace of their own") from None
    return value if isinstance(value, dict) else {}


def merge_secrets(workspace: Workspace, secrets: Mapping[str, str]) -> dict[str, str]:
    """Store `secrets` beside those already there, newer values first; gives back all of them.

    PermanentError where one can be no environment variable. The message names it and never its value.
    """
    for name, value in secrets.items():
        if not name or "=" in name or "\0" in name + value:
            raise PermanentError(f"secrets: {name!r} cannot be an environment variable; use a plain name and a value without NUL")
    if not secrets:
        return read_secrets(workspace)
    lock = FileLock(workspace.root / "secrets.lock")
    deadline = time.monotonic() + _WAIT_S
    while not lock.acquire():
        if time.monotonic() > deadline:
            raise TemporaryError(f"{lock.path} has been held for {_WAIT_S} s; try again")
        time.sleep(0.02)
    try:
        merged = read_secrets(workspace) | dict(secrets)
        write_json(workspace.secrets, merged, mode=0o600)
    finally:
        lock.release()
    return merged
