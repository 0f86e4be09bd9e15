"""Hub data sets: which commit a revision means, and which files a subset and split mean.

The `datasets` library resolves files (cards, subsets, splits, patterns); our own readers then stream them, because published files are
JSON arrays and drifting schemas that its readers load whole or refuse. Other formats than JSON and Parquet are left to its streaming.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from draftmill.errors import PermanentError, TemporaryError
from draftmill.spec.dataset import Source

_TIMEOUT_S = 20.0
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubFiles:
    """The files of one split, as paths or fsspec URLs; none where only the `datasets` library can read them (`shards` then counts)."""

    files: tuple[str, ...]
    shards: int = 0


def commit_of(source: Source) -> str | None:
    """The commit that the source's revision means: now at the hub, or in the local hub cache where the hub is out of reach.

    None where neither knows. Raises PermanentError where the hub says that there is no such data set or revision, or no access.
    """
    if _COMMIT.fullmatch(source.revision):
        return source.revision
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        return HfApi().dataset_info(source.hub or "", revision=source.revision, timeout=_TIMEOUT_S).sha
    except RevisionNotFoundError:
        raise PermanentError(f"sources: hub data set {source.hub} has no revision {source.revision!r}; check 'revision'") from None
    except GatedRepoError:
        raise PermanentError(f"sources: hub data set {source.hub} may not be read; accept its terms, and set HF_TOKEN") from None
    except RepositoryNotFoundError:
        raise PermanentError(f"sources: hub data set {source.hub} does not exist, or needs a token (HF_TOKEN) that may read it") from None
    except (OSError, httpx.HTTPError):
        folder = _cached_snapshot(source.hub or "", source.revision)
        return folder.rstrip("/").rsplit("/", 1)[-1] if folder else None


def find_hub_files(source: Source, commit: str | None) -> HubFiles:
    """The files of the source's split: at the hub, else in the local hub cache, else in the cache of the `datasets` library.

    Raises PermanentError (no such subset or split) or TemporaryError (hub out of reach, nothing cached).
    """
    try:
        builder = _builder(source, source.hub or "", commit)
    except TemporaryError:
        folder = _cached_snapshot(source.hub or "", commit or source.revision)
        if folder is None:
            raise
        builder = _builder(source, folder, None)
    data_files = builder.config.data_files
    if not data_files:
        return HubFiles((), shards=1)
    by_split = {str(split): tuple(str(file) for file in files) for split, files in data_files.items()}
    if source.split not in by_split:
        raise PermanentError(f"sources: hub data set {source.hub} has no split {source.split!r}; it has {', '.join(sorted(by_split))}")
    if type(builder).__module__.rsplit(".", 1)[-1] in ("json", "parquet"):
        return HubFiles(by_split[source.split])
    return HubFiles((), shards=load_split(source, commit).num_shards)


def _cached_snapshot(repository: str, revision: str) -> str | None:
    """The folder of a revision in the local hub cache, where it was downloaded before."""
    from huggingface_hub import snapshot_download

    try:
        return str(snapshot_download(repository, repo_type="dataset", revision=revision, local_files_only=True))
    except OSError:
        return None


def _builder(source: Source, location: str, revision: str | None) -> Any:
    from datasets import load_dataset_builder

    try:
        return load_dataset_builder(location, source.subset, revision=revision)
    except ValueError as error:
        raise PermanentError(f"sources: hub data set {source.hub}: {_first_line(error)}; check 'subset'") from None
    except FileNotFoundError as error:
        raise PermanentError(f"sources: hub data set {source.hub} has no data files: {_first_line(error)}") from None
    except OSError as error:
        raise TemporaryError(
            f"sources: hub data set {source.hub} cannot be reached and is not in the cache: {_first_line(error)}"
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0].rstrip(".")


def load_split(source: Source, commit: str | None) -> Any:
    """The split as an IterableDataset of the `datasets` library; from its cache where the hub is out of reach."""
    from datasets import load_dataset

    try:
        return load_dataset(source.hub or "", source.subset, split=source.split, revision=commit, streaming=True)
    except ValueError as error:
        raise PermanentError(f"sources: hub data set {source.hub}: {_first_line(error)}") from None
    except OSError as error:
        raise TemporaryError(f"sources: hub data set {source.hub} cannot be read: {_first_line(error)}") from None
