"""draftmill on the host: one zipapp, named by the hash of what is in it, uploaded once and kept beside its predecessors.

A run's code is on the host under its own name, so two runs of different versions never overwrite each other's.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from draftmill.jobs.bundle import build
from draftmill_airflow.errors import HostAnswerError, HostSettingsError

if TYPE_CHECKING:
    import paramiko

    from draftmill_airflow.ssh import HostSession

log = logging.getLogger(__name__)

KEEP_S = 30 * 24 * 3600
"""A zipapp that nobody asked for during this time goes. A job that runs longer has imported its code long before."""

_PART_S = 24 * 3600
_MODE = 0o644


@dataclass(frozen=True)
class Delivered:
    """Where the code is on the host, and whether this call brought it there."""

    zipapp: str
    uploaded: bool
    bytes: int


def ensure_code(session: HostSession, thorough: bool = False) -> Delivered:
    """Make sure that the code of this deployment is in the workspace of the host.

    `thorough` reads back what is there and removes what nobody has used for a month. Raises HostUnreachable, HostSettingsError (the
    workspace cannot be written) or HostAnswerError (the disk is full, for example).
    """
    with tempfile.TemporaryDirectory(prefix="draftmill-") as folder, session.sftp() as sftp, _explained(session):
        local = build(Path(folder))
        data = local.read_bytes()
        home = _code_folder(sftp, session.host.workspace)
        target = str(home / local.name)
        there = _size(sftp, target) == len(data) and (not thorough or _digest(sftp, target) == _sha256(data))
        if there:
            sftp.utime(target, None)  # its age is the time since it was last asked for
        else:
            _upload(sftp, data, target)
        if thorough:
            _prune(sftp, home, keep=local.name)
    log.info("%s: code %s %s", session.host.address, target, "delivered" if not there else "is there")
    return Delivered(target, not there, len(data))


@contextlib.contextmanager
def _explained(session: HostSession) -> Iterator[None]:
    where = f"{session.host.address}: workspace {session.host.workspace}"
    try:
        yield
    except TimeoutError:
        raise
    except PermissionError as error:
        raise HostSettingsError(
            f"{where} cannot be written ({error}); correct draftmill.workspace of connection {session.host.conn_id}"
        ) from error
    except OSError as error:
        raise HostAnswerError(
            f"{where}: the code cannot be delivered ({error or type(error).__name__}); see whether its disk is full"
        ) from error


def _code_folder(sftp: paramiko.SFTPClient, workspace: str) -> PurePosixPath:
    """The folder `code` of the workspace as an absolute path, made where it is missing."""
    start = PurePosixPath(sftp.normalize("."))
    below_home = workspace == "~" or workspace.startswith("~/")
    folder = (start / workspace[2:] if below_home else PurePosixPath(workspace)) / "code"
    for step in [*reversed(folder.parents), folder]:
        if _size(sftp, str(step)) is None:
            # Another task may be making it at this moment.
            with contextlib.suppress(OSError):
                sftp.mkdir(str(step), 0o755)
    if _size(sftp, str(folder)) is None:
        raise PermissionError(f"{folder} cannot be made")
    return folder


def _size(sftp: paramiko.SFTPClient, path: str) -> int | None:
    try:
        return sftp.stat(path).st_size
    except FileNotFoundError:
        return None


def _upload(sftp: paramiko.SFTPClient, data: bytes, target: str) -> None:
    """Write beside the final name, read back, then rename: under its own name a zipapp is whole, whoever looks."""
    path = PurePosixPath(target)
    part = str(path.with_name(f".{path.name}.{secrets.token_hex(4)}.part"))
    try:
        with sftp.open(part, "wb") as stream:
            stream.set_pipelined(True)
            stream.write(data)
        sftp.chmod(part, _MODE)
        _require_same(sftp, part, data)
        sftp.posix_rename(part, target)
    except BaseException:
        with contextlib.suppress(OSError, EOFError):
            sftp.remove(part)
        raise


def _require_same(sftp: paramiko.SFTPClient, path: str, data: bytes) -> None:
    if _digest(sftp, path) != _sha256(data):
        raise OSError("what arrived there differs from what was sent")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _digest(sftp: paramiko.SFTPClient, path: str) -> str:
    with sftp.open(path, "rb") as stream:
        stream.prefetch()
        return _sha256(stream.read())


def _prune(sftp: paramiko.SFTPClient, folder: PurePosixPath, keep: str) -> None:
    now = time.time()
    for entry in sftp.listdir_attr(str(folder)):
        name = entry.filename
        limit = _PART_S if name.endswith(".part") else KEEP_S
        ours = name.startswith(("draftmill-", ".draftmill-")) and name.endswith((".pyz", ".part"))
        old = entry.st_mtime is not None and now - entry.st_mtime > limit
        if ours and old and name != keep and stat.S_ISREG(entry.st_mode or 0):
            log.info("removing %s, which was last asked for %.0f days ago", name, (now - (entry.st_mtime or now)) / 86400)
            with contextlib.suppress(FileNotFoundError):
                sftp.remove(str(folder / name))
