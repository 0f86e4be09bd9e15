"""Watching a ready server: is its process there, do tokens move, does anybody need it, does anybody want it gone.

Movement of tokens is the measure, not /health: a slow health reply under load is not death, and a server that answers health and
generates nothing is. Movement is a batch line in the log, a counter that changed, or a new process (kernels are compiled at their first
use, which takes minutes). Where nothing has moved for the profile's `silent_s` while somebody holds a lease, one real token is asked for;
only when that does not come and still nothing moves, the server is wedged. So an idle server is never restarted, and a holder that waits
in vain is never left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from draftmill.jobs.proc import ProcessStat, read_stat
from draftmill.serving.ending import Ending
from draftmill.serving.launch import Launch, signal_name
from draftmill.serving.probe import Probe, ProbeError
from draftmill.serving.progress import mentions_batch

_LOOK_S = 0.5
_COUNTERS_S = 5.0
_LONGEST_TOKEN_S = 60.0
_CHILD_GRACE_S = 8.0
"""SGLang's tree takes itself down about six seconds after one of its processes was killed."""


class Watch:
    """Looks at a ready launch until it ends."""

    def __init__(self, launch: Launch, probe: Probe, silent_s: float, leased: Callable[[], bool]) -> None:
        self._launch = launch
        self._probe = probe
        self._silent_s = silent_s
        self._leased = leased
        self._moved_at = time.monotonic()
        self._counted_at = 0.0
        self._counters: tuple[Any, ...] = ()
        self._children = _children(launch)
        self._pids = {stat.pid for stat in launch.members.find()}

    def until_end(self, interrupted: Callable[[], Ending | None], look: Callable[[], None]) -> Ending:
        """How the server ended. `interrupted` and `look` are called at each look."""
        while True:
            ending = self._dead() or interrupted() or self._wedged()
            if ending:
                return ending
            look()
            time.sleep(_LOOK_S)

    def _dead(self) -> Ending | None:
        code = self._launch.exit_code()
        if code is not None:
            return Ending("died", f"exit code {code} {signal_name(code)}".rstrip(), exit_code=code)
        gone = [child for child in self._children if not _lives(child)]
        if not gone:
            return None
        # The launcher usually follows its child; some builds answer on without it, and then a real token tells.
        deadline = time.monotonic() + _CHILD_GRACE_S
        while time.monotonic() < deadline and self._launch.exit_code() is None:
            time.sleep(_LOOK_S)
        self._children = [child for child in self._children if child not in gone]
        pids = ", ".join(str(child.pid) for child in gone)
        if self._launch.exit_code() is not None or not self._generates(_CHILD_GRACE_S):
            return Ending("died", f"its process {pids} was killed or crashed", exit_code=self._launch.exit_code())
        return None

    def _wedged(self) -> Ending | None:
        now = time.monotonic()
        if mentions_batch(self._launch.follower.new_lines()):
            self._moved_at = now
        if now - self._counted_at > _COUNTERS_S:
            self._counted_at = now
            self._notice_movement()
        if now - self._moved_at < self._silent_s or not self._leased():
            return None
        if self._generates(min(self._silent_s, _LONGEST_TOKEN_S)) or self._notice_movement():
            self._moved_at = time.monotonic()
            return None
        return Ending("wedged", f"has given no token for {time.monotonic() - self._moved_at:.0f} s, although its process lives")

    def _generates(self, timeout_s: float) -> bool:
        try:
            self._probe.generate_one(timeout_s)
        except ProbeError:
            return False
        return True

    def _notice_movement(self) -> bool:
        """Whether a counter changed or a process came since the last look."""
        counters = self._probe.counters()
        pids = {stat.pid for stat in self._launch.members.find()}
        moved = bool(counters and self._counters and counters != self._counters) or bool(pids - self._pids)
        self._counters = counters or self._counters
        self._pids |= pids
        if moved:
            self._moved_at = time.monotonic()
        return moved


def _children(launch: Launch) -> list[ProcessStat]:
    """The launcher's own children at readiness: the schedulers and the detokenizer, without which it is nothing."""
    return [stat for stat in launch.members.find() if stat.ppid == launch.leader.pid]


def _lives(child: ProcessStat) -> bool:
    now = read_stat(child.pid)
    return now is not None and now.start_ticks == child.start_ticks and not now.dead
