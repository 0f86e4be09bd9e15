"""At most `datasets_at_once` data sets of a campaign send new prompts at a time; the others wait for their turn.

A slot is given back as soon as its holder has nothing new to send, so the next data set fills the server while the last answers of
the one before come in. Of those who wait, the one with the longest expected answers goes first. Slots and places in the queue are
locks that the kernel frees with their holder, however it ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from draftmill.errors import StoppedError
from draftmill.files import FileLock

_LOOK_S = 0.5


class Slots:
    """The slots of a campaign folder, as one data set sees them."""

    def __init__(self, folder: Path, dataset: str, expected_tokens: int, at_once: int) -> None:
        self._folder = folder
        self._rank = f"{10**9 - min(expected_tokens, 10**9 - 1):010d}-{dataset}"
        self._note = dataset
        self._slots = [FileLock(folder / f"slot-{number}.lock") for number in range(at_once)]
        self._place = FileLock(folder / f"wait-{self._rank}.lock")
        self._held: FileLock | None = None

    def acquire(self, stop: threading.Event, tell: Callable[[str], None]) -> None:
        """Wait for a slot. StoppedError where `stop` is set first."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._place.acquire(self._note)
        told = False
        try:
            while not self._try():
                if not told:
                    holders = ", ".join(sorted({slot.holder() for slot in self._slots}))
                    tell(f"waiting for a slot: {len(self._slots)} at once, and {holders} are at work")
                    told = True
                if stop.wait(_LOOK_S):
                    raise StoppedError("stopped while waiting for a slot; nothing was lost")
        finally:
            self._place.release()

    def _try(self) -> bool:
        if self._somebody_is_before():
            return False
        for slot in self._slots:
            if slot.acquire(self._note):
                self._held = slot
                return True
        return False

    def _somebody_is_before(self) -> bool:
        """Whether a live process with a better rank waits. Its lock file alone says nothing: files stay, locks go."""
        for path in sorted(self._folder.glob("wait-*.lock")):
            if path == self._place.path:
                return False
            probe = FileLock(path)
            if not probe.acquire():
                return True
            probe.release()
        return False

    def release(self) -> None:
        """Give the slot back; a second call does nothing."""
        if self._held is not None:
            self._held.release()
            self._held = None
