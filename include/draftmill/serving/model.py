"""The model a profile names: where it lies on this host, and what its config.json says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill.files import read_json, sha256_file
from draftmill.layout import Workspace

_HUB_ID_PARTS = 2


@dataclass(frozen=True)
class Model:
    """`name` is what SGLang is given: an absolute path, or a hub id. `folder` is where its files lie, None where nothing is here yet.

    vocab_size, context_length: in tokens, None where config.json does not say. digest: SHA-256 of config.json.
    """

    name: str
    folder: Path | None
    vocab_size: int | None = None
    context_length: int | None = None
    digest: str | None = None


def _cached(hub_id: str) -> Path | None:
    """The folder of a hub model that this host has downloaded, at the newest revision it knows as main."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    found = try_to_load_from_cache(hub_id, "config.json")
    return Path(found).parent if isinstance(found, str) else None


def _looks_like_hub_id(text: str) -> bool:
    return not text.startswith(("/", "~", ".")) and len(text.split("/")) == _HUB_ID_PARTS


def _first(config: dict[str, Any], *keys: str) -> int | None:
    """The first whole number under one of `keys`, in the config itself or, for multimodal models, in its text part."""
    for part in (config.get("text_config"), config.get("llm_config"), config):
        for key in keys:
            value = part.get(key) if isinstance(part, dict) else None
            if isinstance(value, int):
                return value
    return None


def find_model(workspace: Workspace, name: str) -> Model:
    """The model as a profile names it: a path (absolute, `~`, below the workspace), else a hub id."""
    path = workspace.resolve(name)
    folder: Path | None = path if path.exists() else None
    given = str(path)
    if folder is None and _looks_like_hub_id(name):
        folder, given = _cached(name), name
    config_path = folder / "config.json" if folder else None
    config = read_json(config_path) if config_path else None
    if not isinstance(config, dict) or config_path is None:
        return Model(given, folder)
    return Model(
        name=given,
        folder=folder,
        vocab_size=_first(config, "vocab_size"),
        context_length=_first(config, "max_position_embeddings", "model_max_length", "seq_length"),
        digest=sha256_file(config_path),
    )
