"""The supervisor's pen: state.json and the supervisor's own log."""

from __future__ import annotations

import logging
import time
from typing import Any

from draftmill.serving.folder import ServerFolder, ServerState, write_state
from draftmill.serving.redact import redact

_TELL_EVERY_S = 5.0
_LONGEST_MESSAGE = 200

log = logging.getLogger("draftmill.server")


class StateKeeper:
    """Holds the state and writes it when it changes. A full disk delays the writing and ends nothing: a server with no room for its
    state still serves."""

    def __init__(self, folder: ServerFolder, state: ServerState) -> None:
        self._folder = folder
        self._told_at = 0.0
        self._unwritten = False
        self.state = state
        self.write()

    def write(self, **changes: Any) -> None:
        """Change the state and write it."""
        before = self.state
        self.state = before.model_copy(update=changes)
        if self.state.state != before.state or (changes.get("last") and self.state.last):
            log.info("incarnation %d: %s: %s", self.state.incarnation, self.state.state, self.state.message)
        try:
            write_state(self._folder, self.state)
            self._unwritten = False
        except OSError as error:
            if not self._unwritten:
                log.warning("state.json cannot be written: %s", error)
            self._unwritten = True

    def catch_up(self) -> None:
        """Write what could not be written before."""
        if self._unwritten:
            self.write()

    def tell(self, line: str) -> None:
        """A line for people, every few seconds; secrets are taken out."""
        now = time.monotonic()
        if now - self._told_at > _TELL_EVERY_S:
            self._told_at = now
            self.write(message=redact(line, self.state.api_key)[:_LONGEST_MESSAGE])
