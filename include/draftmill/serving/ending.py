"""How a launch came to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EndingKind = Literal["asked", "idle", "died", "silent", "wedged", "port_taken", "wrong_model", "too_small"]


@dataclass(frozen=True)
class Ending:
    """asked: somebody said stop. idle: nobody needed it. died: its process ended. silent: never became ready, or never generated.
    wedged: generated and then stopped to. port_taken, wrong_model, too_small: it cannot be used as it is.
    `why` is half a sentence for people."""

    kind: EndingKind
    why: str
    exit_code: int | None = None

    @property
    def orderly(self) -> bool:
        """Whether the server was well when it was ended."""
        return self.kind in ("asked", "idle")
