"""Reading the configuration folder. Every error is one sentence with the file, the field and the reason."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import orjson
import yaml
from pydantic import BaseModel, RootModel, ValidationError

from draftmill.errors import PermanentError
from draftmill.spec.base import Name
from draftmill.spec.campaign import CampaignSpec
from draftmill.spec.dataset import DatasetSpec
from draftmill.spec.server import ServerProfile

Model = TypeVar("Model", bound=BaseModel)

_MOST_SHOWN = 100
"""Characters of a wrong key or value that a message shows."""


class DatasetTable(RootModel[dict[Name, DatasetSpec]]):
    """datasets.yaml."""


class ServerTable(RootModel[dict[Name, ServerProfile]]):
    """servers.yaml."""


def describe(error: ValidationError) -> str:
    """The first faults of a validation error as `field: reason; field: reason`, in a person's words."""
    parts = []
    for fault in error.errors()[:3]:
        where = _shortened(".".join(str(step) for step in fault["loc"])) or "the whole value"
        reason = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            reason = "unknown key; check its spelling"
        elif fault["type"] == "missing":
            reason = "missing"
        elif isinstance(fault.get("input"), str | int | float | bool):
            reason = f"{reason} (found {_shortened(repr(fault['input']))})"
        parts.append(f"{where}: {reason}")
    more = error.error_count() - len(parts)
    return "; ".join(parts) + (f"; and {more} more" if more > 0 else "")


def _shortened(text: str) -> str:
    """`text` as a part of a sentence: one line, printable, at most as long as a name may be with something to say about it."""
    text = " ".join(text.encode("utf-8", "backslashreplace").decode().split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


class _UniqueKeyLoader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice: YAML would silently keep the last one."""


def _unique_mapping(loader: _UniqueKeyLoader, node: yaml.MappingNode) -> dict[object, object]:
    seen: dict[object, object] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is given twice", key_node.start_mark)
        seen[key] = loader.construct_object(value_node, deep=True)
    return seen


_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def read_yaml(path: Path, model: type[Model]) -> Model:
    """Load `path` into `model`. PermanentError where it is absent, not YAML, or does not fit."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PermanentError(f"{path}: no such file; check the name or DRAFTMILL_CONFIG") from None
    except (OSError, UnicodeDecodeError) as error:
        raise PermanentError(f"{path}: cannot be read: {error}") from None
    try:
        value = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
        # Through JSON, so that YAML lists are accepted for tuples while types stay strict.
        return model.model_validate_json(orjson.dumps(value))
    except yaml.YAMLError as error:
        raise PermanentError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    except TypeError as error:
        raise PermanentError(f"{path}: holds a value that is not text, number, list or mapping: {error}") from None
    except ValidationError as error:
        raise PermanentError(f"{path}: {describe(error)}") from None


class Config:
    """The configuration folder: `datasets.yaml`, `servers.yaml`, `campaigns/NAME.yaml`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def datasets(self) -> dict[str, DatasetSpec]:
        """All known data sets by name."""
        return dict(read_yaml(self.folder / "datasets.yaml", DatasetTable).root)

    def servers(self) -> dict[str, ServerProfile]:
        """All server profiles by name."""
        return dict(read_yaml(self.folder / "servers.yaml", ServerTable).root)

    def campaign_names(self) -> list[str]:
        """Names of the campaign files, sorted."""
        return sorted(path.stem for path in (self.folder / "campaigns").glob("*.yaml"))

    def campaign(self, name: str) -> CampaignSpec:
        """The campaign file called `name`, whose own `name` must be the same."""
        if name not in self.campaign_names():
            known = ", ".join(self.campaign_names()) or "none"
            raise PermanentError(f"campaign: {name!r} is not a campaign file in {self.folder / 'campaigns'}; known: {known}")
        path = self.folder / "campaigns" / f"{name}.yaml"
        spec = read_yaml(path, CampaignSpec)
        if spec.name != name:
            raise PermanentError(f"{path}: name: {spec.name!r} differs from the file's name; use {name!r}")
        return spec
