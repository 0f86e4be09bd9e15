"""Taking a lease: whoever needs the server holds one, and taking it brings the server up where it is not.

One server a workspace. A lease for the profile that runs joins it. Another profile replaces it only when nobody holds a lease; until
then its taker waits, for a bounded time, and is told by name for whom.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

from draftmill.errors import DraftmillError, PermanentError, StoppedError, TemporaryError
from draftmill.files import FileLock, atomic_writer
from draftmill.jobs.detached import DetachedProcess, code_root
from draftmill.layout import Workspace
from draftmill.serving.endpoint import Endpoint, ServerGone
from draftmill.serving.folder import ServerFolder, ServerState, read_state, request_digest, write_request
from draftmill.serving.leases import LeaseFile, LeaseNote, held_leases
from draftmill.serving.stopping import stop_server, supervisor_process
from draftmill.spec.server import NamedServer

Tell = Callable[[str], None]

_LOOK_S = 0.3
_TELL_EVERY_S = 10.0
_WAIT_FOR_OTHERS_S = 300.0
_SUPERVISOR_START_S = 60.0
_MOST_SUPERVISORS = 3
"""How often one holder starts a new supervisor because the last one vanished without a word."""


def refusal(state: ServerState) -> DraftmillError:
    """The error for a server that was given up, with its diagnosis."""
    if state.last is None:
        return ServerGone(f"server {state.server}: {state.message or 'it is gone'}; a retry starts it again")
    text = f"server {state.server}: {state.last.sentence}"
    text += f"; {state.last.advice}" if state.last.advice else ""
    text += f" (log: {state.log})" if state.log else ""
    return PermanentError(text) if state.last.kind == "permanent" else ServerGone(text)


class Host:
    """The server of a workspace as its users bring it up."""

    def __init__(self, workspace: Workspace, server: NamedServer, owner: str, stop: threading.Event, tell: Tell) -> None:
        self.workspace = workspace
        self.folder = ServerFolder.of(workspace)
        self.server = server
        self.digest = request_digest(server)
        self.owner = owner
        self.stop = stop
        self._tell = tell
        self._told = ("", 0.0)
        self.lease: LeaseFile | None = None

    def tell(self, message: str, subject: str | None = None) -> None:
        """A line for people, when its subject (the message itself, where none is given) is new or some time has passed."""
        now = time.monotonic()
        if (subject or message) != self._told[0] or now - self._told[1] > _TELL_EVERY_S:
            self._told = (subject or message, now)
            self._tell(message)

    def pause(self) -> None:
        """Wait a moment; StoppedError where a stop was asked for."""
        if self.stop.wait(_LOOK_S):
            raise StoppedError("stopped while waiting for the server; nothing was lost")

    @contextlib.contextmanager
    def admission(self) -> Iterator[None]:
        """Decide alone: no other user joins, replaces or starts, and an idle supervisor does not go."""
        lock = FileLock(self.folder.admission)
        note = f"{self.owner}, pid {os.getpid()}"
        while not lock.acquire(note):
            self.tell(f"waiting for {lock.holder() or 'somebody'} to finish with the server")
            self.pause()
        try:
            yield
        finally:
            lock.release()

    def ensure(self) -> None:
        """Hold a lease on a supervisor that runs this profile: join, replace or start.

        TemporaryError, naming the holders, where another profile is in use for too long.
        """
        deadline = time.monotonic() + _WAIT_FOR_OTHERS_S
        while True:
            with self.admission():
                if self._joined():
                    return
            others = ", ".join(str(note) for note in self._rivals())
            if time.monotonic() > deadline:
                raise TemporaryError(
                    f"server {self.server.name}: the host's server runs another profile for {others}; retry when they are done"
                )
            self.tell(f"waiting for the host's server: {others} uses it with another profile")
            self.pause()

    def _rivals(self) -> list[LeaseNote]:
        """Who needs the server with another profile, whether it runs at this moment or is being brought back."""
        own = self.lease.path if self.lease else None
        return [note for note in held_leases(self.folder.leases, own) if note.request != self.digest]

    def _joined(self) -> bool:
        process = supervisor_process(self.workspace)
        while process.alive() and self._leaving():
            self.pause()
        if self._rivals():
            return False
        if process.alive() and self._running_digest(process) != self.digest:
            self.tell("draining the server of another profile, which nobody uses")
            stop_server(self.workspace)
        self._take()
        if not process.alive():
            self._start(process)
        return True

    def _leaving(self) -> bool:
        """Whether the supervisor has written its last word: it is gone in a moment, and to join it would be to fail with it."""
        state = read_state(self.folder)
        return state is not None and state.state in ("failed", "stopped")

    def _running_digest(self, process: DetachedProcess) -> str | None:
        identity = process.identity()
        return identity.spec.get("request") if identity else None

    def _take(self) -> None:
        if self.lease is None:
            self.lease = LeaseFile(self.folder.leases, self.owner, self.digest)

    def _start(self, process: DetachedProcess) -> None:
        request = write_request(self.folder, self.server)
        argv = [sys.executable, "-m", "draftmill.serving.cli", "supervise", "--workspace", str(self.workspace.root)]
        paths = [str(code_root()), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        process.start(argv, {"server": self.server.name, "request": request.digest}, {"PYTHONPATH": os.pathsep.join(paths)})
        # The new supervisor's first word, so that nobody takes its predecessor's last one for it.
        deadline = time.monotonic() + _SUPERVISOR_START_S
        while not self._spoke(process):
            if time.monotonic() > deadline or not process.alive():
                raise ServerGone(f"server {self.server.name}: its supervisor did not come up; see {process.log}")
            self.pause()

    def _spoke(self, process: DetachedProcess) -> bool:
        state = read_state(self.folder)
        return state is not None and state.supervisor_pid == process.pid

    def release(self) -> None:
        """Give the lease back."""
        if self.lease is not None:
            self.lease.release()
            self.lease = None


class LeasedServer:
    """A `ServerSource` for the holder of a lease."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._supervisors = 1

    def ready(self, newer_than: int = -1) -> Endpoint | None:
        """The endpoint where it is ready now, None where waiting may help. Raises as `endpoint` does."""
        state = read_state(self.host.folder)
        if state is None or state.request != self.host.digest:
            self._bring_back("it is not there any more")
            return None
        if state.state == "ready" and state.incarnation > newer_than and supervisor_process(self.host.workspace).alive():
            return state.endpoint()
        if state.state == "failed":
            raise refusal(state)
        if not supervisor_process(self.host.workspace).alive():
            self._bring_back(state.message)
            return None
        detail = f": {state.message}" if state.message else ""
        self.host.tell(f"server {state.server}: {state.state}{detail}", f"{state.state} {state.incarnation}")
        return None

    def _bring_back(self, why: str) -> None:
        if self._supervisors >= _MOST_SUPERVISORS:
            raise ServerGone(
                f"server {self.host.server.name}: its supervisor ended {self._supervisors} times; {why}; a retry starts it again"
            )
        self._supervisors += 1
        self.host.tell(f"server {self.host.server.name}: starting it again: {why}")
        self.host.ensure()

    def wait(self, newer_than: int = -1, timeout_s: float | None = None) -> Endpoint:
        """`endpoint`, for callers without an event loop."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            endpoint = self.ready(newer_than)
            if endpoint:
                return endpoint
            self._check(deadline, timeout_s)
            self.host.pause()

    def _check(self, deadline: float | None, timeout_s: float | None) -> None:
        if deadline is not None and time.monotonic() > deadline:
            state = read_state(self.host.folder)
            doing = f"{state.state}: {state.message}" if state else "nothing"
            raise ServerGone(f"server {self.host.server.name}: not ready after {timeout_s:.0f} s ({doing}); a retry goes on waiting")
        if self.host.stop.is_set():
            raise StoppedError("stopped while waiting for the server; nothing was lost")

    async def endpoint(self, newer_than: int = -1, timeout_s: float | None = None) -> Endpoint:
        """See ServerSource."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            endpoint = await asyncio.to_thread(self.ready, newer_than)
            if endpoint:
                return endpoint
            self._check(deadline, timeout_s)
            await asyncio.sleep(_LOOK_S)

    async def report_wedged(self, incarnation: int, why: str) -> None:
        """See ServerSource."""
        path = self.host.folder.wedged(incarnation)
        # On a full disk nothing can be reported, and the supervisor has its own look at moving tokens.
        with contextlib.suppress(OSError):
            if not path.exists():
                with atomic_writer(path) as stream:
                    stream.write(f"{self.host.owner}: {why}".encode())


def _silent(message: str) -> None:
    del message


@contextlib.contextmanager
def hold(workspace: Workspace, server: NamedServer, owner: str, stop: threading.Event, tell: Tell = _silent) -> Iterator[LeasedServer]:
    """Hold a lease on the server; it is brought up where it is not, and ready when this yields.

    `owner` is for people: campaign and data set. `tell` gets a line when the waiting changes and every ten seconds.
    Raises PermanentError or ServerGone with the diagnosis where it cannot be had, TemporaryError where another campaign holds it with
    another profile, StoppedError when `stop` is set. The kernel frees the lease with this process, however it ends.
    """
    host = Host(workspace, server, owner, stop, tell)
    try:
        host.ensure()
        source = LeasedServer(host)
        source.wait()
        yield source
    finally:
        host.release()
