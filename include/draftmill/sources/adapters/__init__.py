"""One adapter per published schema. `make_adapter` finds it by the name that datasets.yaml gives."""

from __future__ import annotations

from draftmill.errors import PermanentError
from draftmill.sources.adapters.agents import SWEAgent, SWESmith
from draftmill.sources.adapters.base import Adapter
from draftmill.sources.adapters.generic import Generic
from draftmill.sources.adapters.glaive import Glaive
from draftmill.sources.adapters.messages import Messages, ShareGPT
from draftmill.sources.adapters.single import Magicoder, OpenCodeInstruct

__all__ = ["ADAPTERS", "Adapter", "make_adapter"]

ADAPTERS: dict[str, type[Adapter]] = {
    adapter.name: adapter for adapter in (Generic, Glaive, Magicoder, Messages, OpenCodeInstruct, ShareGPT, SWEAgent, SWESmith)
}
"""All adapters by name; a new one is added here."""


def make_adapter(name: str, columns: dict[str, str] | None = None) -> Adapter:
    """The adapter called `name`; `columns` is for the generic one. PermanentError where there is none, or `columns` makes no sense."""
    if name not in ADAPTERS:
        raise PermanentError(f"adapter: {name!r} is unknown; known: {', '.join(sorted(ADAPTERS))}")
    return Generic(columns or {}) if name == Generic.name else ADAPTERS[name]()
