"""Who answered: the servers behind the fingerprints in a journal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from draftmill.layout import Workspace
from draftmill.serving.folder import ServerFolder, read_state

_SECRET = re.compile(r"key|token(?!izer)|password|secret|auth", re.IGNORECASE)


def without_secrets(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as they may be published: everything whose name sounds like a secret is left out."""
    return {name: value for name, value in settings.items() if not _SECRET.search(name) or name.endswith("tokens")}


def describe_servers(workspace: Workspace, fingerprints: Iterable[str], known: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Version, model and arguments by fingerprint, as far as they can be told.

    The workspace remembers its latest server; earlier ones are taken from `known`, what was told when their rows were tokenized.
    """
    described = {name: known[name] for name in fingerprints if name in known}
    state = read_state(ServerFolder.of(workspace))
    if state is not None and state.fingerprint and state.fingerprint in set(fingerprints):
        described[state.fingerprint] = {
            "version": state.version,
            "model_path": state.model_path,
            "arguments": without_secrets(dict(state.arguments)),
        }
    return described
