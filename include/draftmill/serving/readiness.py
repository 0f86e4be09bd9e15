"""From started to ready: the port is ours, the model is the one asked for, and one real token came back.

There is no fixed limit: a launch may take as long as it moves. It ends at once with its process, and after the profile's stall time
without any sign of progress.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from draftmill.serving.ending import Ending
from draftmill.serving.gpu import all_gpus
from draftmill.serving.launch import Launch, signal_name
from draftmill.serving.logtext import clean_line
from draftmill.serving.ports import is_listening, name_owner, port_owners
from draftmill.serving.probe import Facts, Probe, ProbeError
from draftmill.serving.progress import LoadProgress
from draftmill.spec.server import ServerProfile

_LOOK_S = 0.5
_GPU_LOOK_S = 5


@dataclass
class Await:
    """What a launch is waited for with. `interrupted` gives an ending when the wait is to be given up; `tell` takes a line for people."""

    profile: ServerProfile
    model_name: str
    port: int
    probe: Probe
    interrupted: Callable[[], Ending | None]
    tell: Callable[[str], None]


class _FirstToken:
    """The readiness generation, in a thread of its own: the first batch may compile kernels for minutes."""

    def __init__(self, probe: Probe, timeout_s: float) -> None:
        self.error: str | None = None
        self._probe = probe
        self._timeout_s = timeout_s
        self._thread = threading.Thread(target=self._run, name="first-token", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._probe.generate_one(self._timeout_s)
        except ProbeError as error:
            self.error = str(error)

    def done(self) -> bool:
        return not self._thread.is_alive()


def _same_model(facts: Facts, wanted: str) -> bool:
    if facts.model_path == wanted:
        return True
    return (
        Path(wanted).is_absolute() and Path(facts.model_path).is_absolute() and Path(facts.model_path).resolve() == Path(wanted).resolve()
    )


class Readiness:
    """Looks at a launch until it is ready or over."""

    def __init__(self, launch: Launch, awaited: Await) -> None:
        self._launch = launch
        self._awaited = awaited
        self._progress = LoadProgress()
        self._gpu_used = 0
        self._gpu_looked_at = 0.0
        self._first: _FirstToken | None = None
        self._facts: Facts | None = None

    def wait(self) -> Facts | Ending:
        """Facts of the ready server, or how the launch ended."""
        while True:
            ending = self._over() or self._awaited.interrupted()
            if ending:
                return ending
            verdict = self._check()
            if verdict is not None:
                return verdict
            time.sleep(_LOOK_S)

    def _over(self) -> Ending | None:
        code = self._launch.exit_code()
        if code is not None:
            return Ending("died", f"exit code {code} {signal_name(code)}".rstrip(), exit_code=code)
        self._look()
        if self._progress.still_s > self._awaited.profile.load_stall_s:
            doing = "answers, but generates nothing" if self._first else "shows no sign of progress"
            return Ending("silent", f"{doing} since {self._progress.still_s:.0f} s")
        return None

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._gpu_looked_at > _GPU_LOOK_S and self._awaited.profile.device != "cpu":
            self._gpu_looked_at = now
            self._gpu_used = sum(gpu.used for gpu in all_gpus())
        lines = self._launch.follower.new_lines()
        self._progress.look(self._launch.members.find(), lines, self._gpu_used)
        telling = [text for line in lines if (text := clean_line(line.decode(errors="replace")))]
        if telling:
            self._awaited.tell(telling[-1])

    def _check(self) -> Facts | Ending | None:
        """One look at port, model and first token. None: not yet."""
        if self._first is not None:
            return self._first_token()
        port = self._awaited.port
        if not is_listening(port):
            return None
        if not port_owners(port, [stat.pid for stat in self._launch.members.find()]):
            return Ending("port_taken", f"port {port} is taken by {name_owner(port)}, which is not ours")
        self._facts = self._awaited.probe.facts()
        if self._facts is None or not self._awaited.probe.healthy():
            return None
        if not _same_model(self._facts, self._awaited.model_name):
            return Ending("wrong_model", f"the server serves {self._facts.model_path}, not {self._awaited.model_name}")
        self._first = _FirstToken(self._awaited.probe, self._awaited.profile.load_stall_s)
        return None

    def _first_token(self) -> Facts | Ending | None:
        if self._first is None or not self._first.done():
            return None
        if self._first.error is None:
            return self._facts
        if self._launch.exit_code() is not None:
            return None  # the next look says how it died
        return Ending("silent", f"answers, but generates nothing: {self._first.error}")
