"""Stopping the server of a workspace from outside its supervisor, and making sure that it is gone."""

from __future__ import annotations

import contextlib
import time

from draftmill.errors import DraftmillError, PermanentError
from draftmill.files import FileLock
from draftmill.jobs.detached import DetachedProcess
from draftmill.layout import Workspace
from draftmill.serving.folder import ServerFolder, ServerState, read_request, read_state, write_state
from draftmill.serving.ground import end_leftovers, leftovers
from draftmill.serving.processes import name_processes
from draftmill.serving.verify import verify_gone

_SLACK_S = 120.0
"""On top of the profile's drain time: KILL, GPU memory and the supervisor's own end."""
_USUAL_DRAIN_S = 120.0
_LOCK_WAIT_S = 10.0


def supervisor_process(workspace: Workspace) -> DetachedProcess:
    """The supervisor as a detached process."""
    return DetachedProcess(ServerFolder.of(workspace).supervisor)


def is_running(workspace: Workspace) -> bool:
    """Whether a supervisor lives, or a server that lost its own."""
    if supervisor_process(workspace).alive():
        return True
    folder = ServerFolder.of(workspace)
    return bool(leftovers(read_state(folder) or ServerState(), folder))


def is_clean(workspace: Workspace) -> bool:
    """Whether nothing runs and the last end was verified, so that there is nothing to stop."""
    state = read_state(ServerFolder.of(workspace))
    return not is_running(workspace) and (state is None or state.state == "stopped")


def drain_limit_s(folder: ServerFolder) -> float:
    """How long the running server may drain, by its own profile."""
    request = read_request(folder)
    return request.server.profile.drain_s if request else _USUAL_DRAIN_S


def stop_server(workspace: Workspace) -> None:
    """TERM to the supervisor, which drains; then nothing of ours alive, port free, GPU memory back.

    The caller holds admission. PermanentError names what survived: a person has to look at the host.
    """
    folder = ServerFolder.of(workspace)
    survivors = supervisor_process(workspace).stop(drain_limit_s(folder) + _SLACK_S)
    if survivors:
        raise PermanentError(f"the server was told to stop and then killed, but {name_processes(survivors)} lives on; look at the host")
    _sweep(folder)


def _sweep(folder: ServerFolder) -> None:
    """What a supervisor does at its end, for one that was killed before it could."""
    lock = FileLock(folder.lock)
    deadline = time.monotonic() + _LOCK_WAIT_S
    while not lock.acquire("stopping"):
        if time.monotonic() > deadline:
            raise PermanentError(f"{folder.lock}: still held by {lock.holder()}, which cannot be found; `fuser -v` on it names the holder")
        time.sleep(0.1)
    try:
        state = read_state(folder) or ServerState()
        end_leftovers(state, folder)
        verify_gone(state, folder)
        if state.state not in ("failed", "stopped"):
            with contextlib.suppress(OSError):  # a full disk must not fail a stop that went well
                write_state(folder, state.model_copy(update={"state": "stopped", "message": "stopped", "processes": []}))
    except DraftmillError as error:
        raise PermanentError(str(error)) from None
    finally:
        lock.release()
