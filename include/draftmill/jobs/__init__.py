"""Detached jobs on the host: started once, found again by their key, stopped in order.

`start`, `status` and `stop` are loaded when first used: the launcher of a job imports this package and needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftmill.jobs.control import start, status, stop

__all__ = ["start", "status", "stop"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from draftmill.jobs import control

        return getattr(control, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
